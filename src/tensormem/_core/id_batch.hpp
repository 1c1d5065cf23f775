// Owns: a batch of 64-bit integers that a caller gave, read in place for the length of a call.
// Must not know: what the numbers mean.
#pragma once

#include <Python.h>

#include <cstdint>

namespace tensormem {

class IdBatch {
 public:
  IdBatch() = default;
  ~IdBatch() { release(); }
  IdBatch(const IdBatch&) = delete;
  IdBatch& operator=(const IdBatch&) = delete;

  // False, and no exception, if it is not a buffer of 64-bit integers side by side.
  bool look(PyObject* object) {
    release();
    if (PyObject_GetBuffer(object, &view_, PyBUF_ND | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      return false;
    }
    held_ = true;
    return view_.ndim == 1 && view_.itemsize == 8 && is_integer(view_.format);
  }
  const std::uint64_t* data() const { return static_cast<const std::uint64_t*>(view_.buf); }
  std::uint64_t size() const { return held_ ? static_cast<std::uint64_t>(view_.shape[0]) : 0; }

 private:
  static bool is_integer(const char* format) {
    if (format == nullptr) return false;
    if (*format == '@' || *format == '=' || *format == '<') ++format;
    return (*format == 'q' || *format == 'l' || *format == 'Q' || *format == 'L') && format[1] == '\0';
  }
  void release() {
    if (held_) PyBuffer_Release(&view_);
    held_ = false;
  }

  Py_buffer view_{};
  bool held_ = false;
};

}  // namespace tensormem
