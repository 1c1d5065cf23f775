// Owns: the way from a budget that needs memory back into a Python function.
#pragma once

#include "_core/hooks.hpp"
#include "pool/tenant_budgets.hpp"

namespace tensormem {

// Takes the GIL itself and writes how it went.
using GiveBackFunction = void (*)(PyObject* context, std::uint64_t wanted, Status* status);

inline GiveBackHook give_back_hook(PyObject* context, GiveBackFunction function) {
  return [held = hold(context), function](std::uint64_t wanted) { return call_python(held, function, wanted); };
}

}  // namespace tensormem
