// Owns: how a thread comes back to Python, in every module of this package (the build includes it first).
//   An interpreter that ends takes back no thread. Python before 3.14 ends one that asks for the GIL then by
//   `pthread_exit`, which unwinds the stack, and a C++ function that must not throw aborts the process; Python 3.14
//   lets it hang. Here it always hangs: below our frames nothing is unwound. That holds also for a thread that native
//   code called Python in, and whose GIL was taken away there.
// Must not know: what the thread was doing. It holds no lock of ours: nobody may who waits for the GIL.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>
#include <unistd.h>

#include <utility>

namespace tensormem {

// Destroyed while it is armed, it stops the thread for good.
class UnwindStop {
 public:
  UnwindStop() = default;
  UnwindStop(const UnwindStop&) = delete;
  UnwindStop& operator=(const UnwindStop&) = delete;
  ~UnwindStop() {
    while (armed_) ::pause();
  }
  void arm() { armed_ = true; }
  void disarm() { armed_ = false; }

 private:
  bool armed_ = false;
};

// From `ensure_gil` to `release_gil`, in a variable.
class GilState {
 public:
  explicit GilState(PyGILState_STATE state) : state_(state) { stop_.arm(); }
  GilState(GilState&& other) noexcept : state_(other.state_) {
    stop_.arm();
    other.stop_.disarm();
  }
  GilState& operator=(GilState&& other) noexcept {
    state_ = other.state_;
    other.stop_.disarm();
    stop_.arm();
    return *this;
  }
  GilState() = default;
  explicit GilState(int) {}  // Cython's way to say: none

  void release() {
    stop_.disarm();
    PyGILState_Release(state_);
  }

 private:
  UnwindStop stop_;
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
};

inline GilState ensure_gil() {
  UnwindStop stop;
  stop.arm();
  const PyGILState_STATE state = PyGILState_Ensure();
  stop.disarm();
  return GilState(state);
}

inline void release_gil(GilState& state) { state.release(); }

inline void restore_thread(PyThreadState* state) {
  UnwindStop stop;
  stop.arm();
  PyEval_RestoreThread(state);
  stop.disarm();
}

}  // namespace tensormem

// Cython writes these names, and so do the macros of Python.h.
#define PyGILState_STATE ::tensormem::GilState
#define PyGILState_Ensure ::tensormem::ensure_gil
#define PyGILState_Release ::tensormem::release_gil
#define PyEval_RestoreThread ::tensormem::restore_thread
