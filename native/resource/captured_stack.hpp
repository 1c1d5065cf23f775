// Owns: the stack of a caller in another language, as an opaque object that is dropped when nobody needs it any more.
// Must not know: which language, or what a stack looks like.
#pragma once

#include <functional>
#include <memory>
#include <new>

namespace tensormem {

// Null: none was captured. The last holder drops the object, so hold no lock of ours while letting one go.
using CapturedStack = std::shared_ptr<void>;

// Both are called without any lock of ours, from any thread.
struct StackHooks {
  std::function<void*()> capture;  // may be empty, and may give null: no stacks
  void (*drop)(void*) = nullptr;   // once for every object that `capture` gave
};

inline CapturedStack capture_stack(const StackHooks& hooks) {
  if (!hooks.capture) return nullptr;
  void* const stack = hooks.capture();
  if (stack == nullptr) return nullptr;
  try {
    return {stack, hooks.drop};
  } catch (const std::bad_alloc&) {
    return nullptr;  // the pointer's constructor has dropped it
  }
}

}  // namespace tensormem
