// Owns: memory of a kind that Python makes, as a leaf of the native stack sees it: a function that makes it, and an
// object that ends it. Must not know: kinds, storages.
#pragma once

#include <Python.h>

#include <memory>
#include <new>
#include <utility>

#include "_core/hooks.hpp"
#include "resource/memory_maker.hpp"

namespace tensormem {

// Both take the GIL themselves. `make` gives a new reference to the object that `end` will be called with.
using MakeFunction = void (*)(PyObject* context, const AllocRequest* request, PyObject** ending, std::uint64_t* address,
                              Status* status);
using EndFunction = void (*)(PyObject* ending);

// While a storage lives it is the storage that holds the object, where the garbage collector sees it; the leaf holds it
// before, and from the storage's end until every stream has passed.
class PythonKindMemory final : public KindMemory {
 public:
  PythonKindMemory(PyObject* ending, std::uint64_t address, EndFunction end)
      : ending_(ending), address_(address), end_(end) {}
  ~PythonKindMemory() override {
    if (ending_ != nullptr) drop_python_object(ending_);
  }

  std::uint64_t address() const noexcept override { return address_; }
  Status release() noexcept override {
    PyObject* const ending = std::exchange(ending_, nullptr);
    if (ending == nullptr || interpreter_is_ending()) return {};
    end_(ending);
    drop_python_object(ending);
    return {};
  }

  // With the GIL.
  void hold(PyObject* ending) { ending_ = Py_NewRef(ending); }
  void lend() { Py_XDECREF(std::exchange(ending_, nullptr)); }

 private:
  PyObject* ending_;
  const std::uint64_t address_;
  const EndFunction end_;
};

class PythonMaker final : public MemoryMaker {
 public:
  PythonMaker(PyObject* context, MakeFunction make, EndFunction end)
      : context_(tensormem::hold(context)), make_(make), end_(end) {}

  Status make(const AllocRequest& request, std::unique_ptr<KindMemory>* made) noexcept override {
    if (interpreter_is_ending()) return interpreter_gone();
    PyObject* ending = nullptr;
    std::uint64_t address = 0;
    Status status;
    make_(context_.get(), &request, &ending, &address, &status);
    if (!status.ok()) return status;
    made_ = new (std::nothrow) PythonKindMemory(ending, address, end_);
    if (made_ == nullptr) {
      end_(ending);
      drop_python_object(ending);
      return Status::fail(Code::out_of_memory, "no memory to remember one more piece of memory", request.nbytes);
    }
    made->reset(made_);
    return {};
  }

  // What was made last; the leaf's.
  PythonKindMemory* made() const { return made_; }

 private:
  const HeldObject context_;
  const MakeFunction make_;
  const EndFunction end_;
  PythonKindMemory* made_ = nullptr;
};

}  // namespace tensormem
