// Owns: Python stacks as small numbers, for traces: the frames of the calling thread as (code, instruction), looked up
// in a table, and only when they are new turned into file, line and function. That is done at once and not when the
// file is written, because the thread that writes has no business with Python. Must not know: who wants the number.
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "_core/gil.hpp"
#include "trace/recorder.hpp"

namespace tensormem {

class StackTable {
 public:
  static StackTable& instance() {
    static StackTable* const table = new StackTable;
    return *table;
  }

  // 0 on a thread without the GIL or without Python frames.
  std::uint32_t capture() noexcept {
    if (PyGILState_Check() == 0 || interpreter_is_ending()) return 0;
    Frames frames;
    const std::size_t count = walk(&frames);
    if (count == 0) return 0;
    std::vector<PyCodeObject*> unused;
    std::uint32_t id = 0;
    try {
      id = find_or_add({frames.data(), count}, &unused);
    } catch (const std::bad_alloc&) {
      for (std::size_t i = 0; i < count; ++i) Py_DECREF(frames[i].first);
      return 0;
    }
    for (PyCodeObject* code : unused) Py_DECREF(code);
    return id;
  }

 private:
  using Frame = std::pair<PyCodeObject*, int>;  // and the instruction in it
  static constexpr std::size_t kMostFrames = 64;
  using Frames = std::array<Frame, kMostFrames>;
  struct Known {
    std::vector<Frame> frames;
    std::uint32_t id;
  };

  // The innermost first; each with a reference to its code.
  static std::size_t walk(Frames* frames) noexcept {
    std::size_t count = 0;
    auto* frame = reinterpret_cast<PyFrameObject*>(Py_XNewRef(reinterpret_cast<PyObject*>(PyEval_GetFrame())));
    while (frame != nullptr) {
      if (count < kMostFrames) (*frames)[count++] = {PyFrame_GetCode(frame), PyFrame_GetLasti(frame)};
      PyFrameObject* back = count < kMostFrames ? PyFrame_GetBack(frame) : nullptr;
      Py_DECREF(frame);
      frame = back;
    }
    return count;
  }

  static std::uint64_t hash(std::span<const Frame> frames) noexcept {
    std::uint64_t mixed = frames.size();
    for (const auto& [code, instruction] : frames) {
      mixed ^= reinterpret_cast<std::uintptr_t>(code) + static_cast<std::uint64_t>(instruction) * 0x9E3779B97F4A7C15ULL;
      mixed = (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9ULL;
    }
    return mixed;
  }

  // A stack that stays keeps its references; `unused` are to be dropped, without the lock.
  std::uint32_t find_or_add(std::span<const Frame> frames, std::vector<PyCodeObject*>* unused) {
    const std::lock_guard lock(mutex_);
    unused->reserve(frames.size());
    begin_session(unused);
    const std::uint64_t key = hash(frames);
    const auto [first, last] = stacks_.equal_range(key);
    for (auto at = first; at != last; ++at) {
      if (!std::equal(frames.begin(), frames.end(), at->second.frames.begin(), at->second.frames.end())) continue;
      for (const Frame& frame : frames) unused->push_back(frame.first);
      return at->second.id;
    }
    std::vector<std::uint32_t> numbers;
    numbers.reserve(frames.size());
    for (const Frame& frame : frames) numbers.push_back(number_of(frame));
    const std::uint32_t id = next_stack_;
    stacks_.emplace(key, Known{{frames.begin(), frames.end()}, id});
    ++next_stack_;
    TraceRecorder::instance().define(DefinitionKind::stack, id, numbers, {});
    return id;
  }

  // Numbers mean nothing in the next recording.
  void begin_session(std::vector<PyCodeObject*>* unused) {
    const std::uint32_t session = TraceRecorder::instance().session();
    if (session == session_) return;
    session_ = session;
    for (const auto& [key, known] : stacks_) {
      for (const Frame& frame : known.frames) unused->push_back(frame.first);
    }
    stacks_.clear();
    lines_.clear();
    next_stack_ = next_frame_ = 1;
  }

  std::uint32_t number_of(const Frame& frame) {
    const int line = PyCode_Addr2Line(frame.first, frame.second);
    const auto [at, is_new] = lines_.emplace(std::pair(frame.first, line), next_frame_);
    if (!is_new) return at->second;
    const auto shown = static_cast<std::uint32_t>(line < 0 ? 0 : line);
    TraceRecorder::instance().define(DefinitionKind::frame, next_frame_, {&shown, 1},
                                     {text(frame.first->co_filename), text(frame.first->co_qualname)});
    return next_frame_++;
  }

  static std::string_view text(PyObject* string) noexcept {
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);  // we may be called while one is on its way
    Py_ssize_t length = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(string, &length);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return bytes == nullptr ? std::string_view("?") : std::string_view(bytes, static_cast<std::size_t>(length));
  }

  std::mutex mutex_;
  std::uint32_t session_ = 0;
  std::unordered_multimap<std::uint64_t, Known> stacks_;
  std::map<std::pair<PyCodeObject*, int>, std::uint32_t> lines_;
  std::uint32_t next_stack_ = 1;
  std::uint32_t next_frame_ = 1;
};

inline void install_python_stacks() {
  TraceRecorder::instance().install_stacks([]() noexcept { return StackTable::instance().capture(); });
}

}  // namespace tensormem
