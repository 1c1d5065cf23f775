#include "share/descriptor_wait.hpp"

#include "driver/host/os.hpp"

namespace tensormem {

Status wait_for_descriptors(pollfd* watched, std::uint32_t count, const Wait& wait) {
  int error = 0;
  TM_TRY(wait.until([&](std::uint64_t nanoseconds) {
    bool ready = false;
    error = host::os::wait_for_descriptors(watched, count, nanoseconds, &ready);
    return ready || error != 0;
  }));
  return error == 0 ? Status() : Status::driver_error(error, "ppoll");
}

}  // namespace tensormem
