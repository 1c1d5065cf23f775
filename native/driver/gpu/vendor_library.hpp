// Owns: opening a vendor's shared library, and telling which file that was. Must not know: which vendor it is.
#pragma once

#include <string>

namespace tensormem::gpu {

struct VendorLibrary {
  void* handle = nullptr;
  std::string path;  // of the file that the loader took
};

// Opens a file, or what the loader finds by a name. Never closed again: others may hold its functions, and drivers do
// not like to be unloaded. False, and why, when it cannot be opened.
bool open_library(const std::string& name, VendorLibrary* library, std::string* why);

}  // namespace tensormem::gpu
