// Owns: kinds of devices by name: which driver, what it can do, which habits it has.
// Must not know: the numbers by which a vendor's interface asks; the two front ends do.
#pragma once

#include <string>

#include "core/config.hpp"

namespace simgpu {

// What the front end simulates unless told otherwise, and the vendor whose profiles it takes. Each front defines both.
extern const char* const kDefaultProfile;
extern const char* const kVendor;

// False, and `*config` as it was, when this vendor has no such profile.
bool use_profile(const std::string& name, Config* config);
// The names of the vendor's profiles, for a message.
std::string profile_names();

}  // namespace simgpu
