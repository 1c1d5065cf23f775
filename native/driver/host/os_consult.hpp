// Owns: how a system call asks the fault plan first. For the files of os.hpp alone.
#pragma once

#include <cerrno>

#include "driver/host/fault_plan.hpp"

#define TM_CONSULT(call)                                                                      \
  do {                                                                                        \
    if (const int planned = fault_plan::consult(SystemCall::call); planned != 0) [[unlikely]] \
      return planned;                                                                         \
  } while (false)

namespace tensormem::host::os {

inline int result(int answer) { return answer == 0 ? 0 : errno; }

}  // namespace tensormem::host::os
