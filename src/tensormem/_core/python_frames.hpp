// Owns: the Python frames of the calling thread, whether or not it holds the GIL. A thread that let the GIL go (as
// PyTorch does in every operation) has frames that nobody else changes, and what they hold cannot end before they do:
// so they are read as they lie, and no reference count is touched. Where the interpreter's own structures are not known
// (from 3.13 on), its public functions are called, which need the GIL. Must not know: what frames are wanted for.
#pragma once

#include <Python.h>

#include <compare>
#include <cstddef>
#include <span>
#include <string>

#if PY_VERSION_HEX < 0x030D0000
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

namespace tensormem {

struct PythonFrame {
  PyCodeObject* code = nullptr;
  PyObject* file = nullptr;
  PyObject* function = nullptr;
  int first_line = 0;
  int instruction = 0;

  auto operator<=>(const PythonFrame&) const = default;
};

inline PythonFrame frame_of(PyCodeObject* code, int instruction) noexcept {
  return {code, code->co_filename, code->co_qualname, code->co_firstlineno, instruction};
}

// How many were written: the innermost first, and those beyond the length of `frames` are left out.
inline std::size_t walk_python_frames(std::span<PythonFrame> frames) noexcept {
  std::size_t count = 0;
#if PY_VERSION_HEX < 0x030D0000
  const PyThreadState* thread = PyGILState_GetThisThreadState();
  if (thread == nullptr || thread->cframe == nullptr) return 0;
  for (_PyInterpreterFrame* frame = thread->cframe->current_frame; frame != nullptr && count < frames.size();
       frame = frame->previous) {
    if (_PyFrame_IsIncomplete(frame)) continue;
    const int instruction = _PyInterpreterFrame_LASTI(frame) * static_cast<int>(sizeof(_Py_CODEUNIT));
    frames[count++] = frame_of(frame->f_code, instruction);
  }
#else
  if (PyGILState_Check() == 0) return 0;
  auto* frame = reinterpret_cast<PyFrameObject*>(Py_XNewRef(reinterpret_cast<PyObject*>(PyEval_GetFrame())));
  while (frame != nullptr) {
    if (count < frames.size()) {
      PyCodeObject* code = PyFrame_GetCode(frame);
      frames[count++] = frame_of(code, PyFrame_GetLasti(frame));
      Py_DECREF(code);  // the frame has another
    }
    PyFrameObject* back = count < frames.size() ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
#endif
  return count;
}

// The text of a string, without the GIL; what is half of a character becomes a question mark.
inline std::string utf8_of(PyObject* string) {
  std::string text;
  const auto length = static_cast<std::size_t>(PyUnicode_GET_LENGTH(string));
  const int kind = PyUnicode_KIND(string);
  const void* data = PyUnicode_DATA(string);
  if (PyUnicode_IS_ASCII(string)) return {static_cast<const char*>(data), length};
  const auto put = [&](unsigned byte) { text.push_back(static_cast<char>(byte)); };
  for (std::size_t i = 0; i < length; ++i) {
    const Py_UCS4 point = PyUnicode_READ(kind, data, static_cast<Py_ssize_t>(i));
    if (point < 0x80) {
      put(point);
    } else if (point < 0x800) {
      put(0xC0 | point >> 6);
      put(0x80 | (point & 0x3F));
    } else if (point >= 0xD800 && point < 0xE000) {
      put('?');
    } else if (point < 0x10000) {
      put(0xE0 | point >> 12);
      put(0x80 | (point >> 6 & 0x3F));
      put(0x80 | (point & 0x3F));
    } else {
      put(0xF0 | point >> 18);
      put(0x80 | (point >> 12 & 0x3F));
      put(0x80 | (point >> 6 & 0x3F));
      put(0x80 | (point & 0x3F));
    }
  }
  return text;
}

}  // namespace tensormem
