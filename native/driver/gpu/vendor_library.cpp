#include "driver/gpu/vendor_library.hpp"

#include <dlfcn.h>
#include <link.h>

namespace tensormem::gpu {

bool open_library(const std::string& name, VendorLibrary* library, std::string* why) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    *why = name + " cannot be opened: " + (reason != nullptr ? reason : "no reason given");
    return false;
  }
  link_map* entry = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &entry) == 0 && entry != nullptr && entry->l_name[0] != '\0';
  *library = {handle, known ? entry->l_name : name};
  return true;
}

}  // namespace tensormem::gpu
