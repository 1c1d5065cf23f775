// Owns: Python stacks as small numbers, for traces: the frames of the calling thread, looked up in a table, and only
// when they are new turned into file, line and function. That is done at once and not when the file is written, because
// the thread that writes has no business with Python. Code objects are not held: a frame is known by its code together
// with what that code says of itself, so another code at the same address is another frame. Must not know: who wants
// the number.
#pragma once

#include <Python.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "_core/gil.hpp"
#include "_core/python_frames.hpp"
#include "base/fork_guard.hpp"
#include "trace/recorder.hpp"
#include "trace/unseen.hpp"

namespace tensormem {

class StackTable {
 public:
  static StackTable& instance() {
    static StackTable* const table = new StackTable;
    return *table;
  }

  // 0 on a thread without Python frames.
  std::uint32_t capture() noexcept {
    if (interpreter_is_ending()) return 0;
    const TraceUnseen unseen;
    std::array<PythonFrame, kMostFrames> frames;
    const std::size_t count = walk_python_frames(frames);
    if (count == 0) return 0;
    try {
      return find_or_add({frames.data(), count});
    } catch (const std::bad_alloc&) {
      return 0;
    }
  }

 private:
  static constexpr std::size_t kMostFrames = 64;
  struct Known {
    std::vector<PythonFrame> frames;
    std::uint32_t id;
  };

  static std::uint64_t hash(std::span<const PythonFrame> frames) noexcept {
    std::uint64_t mixed = frames.size();
    for (const PythonFrame& frame : frames) {
      mixed ^= reinterpret_cast<std::uintptr_t>(frame.code) +
               static_cast<std::uint64_t>(frame.instruction) * 0x9E3779B97F4A7C15ULL;
      mixed = (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9ULL;
    }
    return mixed;
  }

  std::uint32_t find_or_add(std::span<const PythonFrame> frames) {
    const std::lock_guard lock(mutex_);
    begin_session();
    const std::uint64_t key = hash(frames);
    const auto [first, last] = stacks_.equal_range(key);
    for (auto at = first; at != last; ++at) {
      if (std::equal(frames.begin(), frames.end(), at->second.frames.begin(), at->second.frames.end()))
        return at->second.id;
    }
    std::vector<std::uint32_t> numbers;
    numbers.reserve(frames.size());
    for (const PythonFrame& frame : frames) numbers.push_back(number_of(frame));
    const std::uint32_t id = next_stack_;
    stacks_.emplace(key, Known{{frames.begin(), frames.end()}, id});
    ++next_stack_;
    TraceRecorder::instance().define(DefinitionKind::stack, id, numbers, {});
    return id;
  }

  // Numbers mean nothing in the next recording.
  void begin_session() {
    const std::uint32_t session = TraceRecorder::instance().session();
    if (session == session_) return;
    session_ = session;
    stacks_.clear();
    lines_.clear();
    next_stack_ = next_frame_ = 1;
  }

  std::uint32_t number_of(const PythonFrame& frame) {
    const int line = PyCode_Addr2Line(frame.code, frame.instruction);
    PythonFrame place = frame;
    place.instruction = line;
    const auto [at, is_new] = lines_.emplace(place, next_frame_);
    if (!is_new) return at->second;
    const auto shown = static_cast<std::uint32_t>(line < 0 ? 0 : line);
    TraceRecorder::instance().define(DefinitionKind::frame, next_frame_, {&shown, 1},
                                     {utf8_of(frame.file), utf8_of(frame.function)});
    return next_frame_++;
  }

  std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::uint32_t session_ = 0;
  std::unordered_multimap<std::uint64_t, Known> stacks_;
  std::map<PythonFrame, std::uint32_t> lines_;  // with the line where a frame has its instruction
  std::uint32_t next_stack_ = 1;
  std::uint32_t next_frame_ = 1;
};

inline void install_python_stacks() {
  (void)StackTable::instance();
  TraceRecorder::instance().install_stacks([]() noexcept { return StackTable::instance().capture(); });
}

}  // namespace tensormem
