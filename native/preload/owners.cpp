#include "preload/owners.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>
#include <unwind.h>

#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/fork_guard.hpp"
#include "base/interned.hpp"
#include "trace/reporters.hpp"

namespace tensormem {

namespace {

enum class Role : std::uint8_t { caller, passage, ours };

struct Library {
  std::string path;  // a library that is unloaded may leave its place to another
  ForeignOwner owner;
  Role role = Role::caller;
};

struct Table {
  std::mutex mutex;
  ForkGuard fork_guard{mutex};
  std::unordered_map<const link_map*, Library> libraries;
};

Table& table() {
  static Table* const made = new Table;
  return *made;
}
const bool g_made_early = (table(), true);

std::string_view file_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// The folder under site-packages, without what wheels put behind it; otherwise the file's name without "lib" and from
// its first dot on.
std::string_view known_name(std::string_view path) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    const auto at = path.rfind(folder);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = path.substr(at + folder.size());
    return rest.substr(0, rest.find_first_of("./"));
  }
  std::string_view file = file_name(path);
  if (file.find(".so") == std::string_view::npos) return file;
  if (file.starts_with("lib")) file.remove_prefix(3);
  return file.substr(0, file.find('.'));
}

Role role_of(std::string_view path) {
  const std::string_view file = file_name(path);
  for (const std::string_view name :
       {"libstdc++.so", "libc++.so", "libc++abi.so", "libc.so", "libtensormem_preload.so"})
    if (file.starts_with(name)) return Role::passage;
  const bool is_ours = file.starts_with("libtensormem_native.so") || path.find("/tensormem/_core/") != path.npos;
  return is_ours ? Role::ours : Role::caller;
}

std::string path_of(const link_map& map) {
  if (map.l_name != nullptr && map.l_name[0] != '\0') return map.l_name;
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  return length <= 0 ? std::string("program") : std::string(path, static_cast<std::size_t>(length));
}

const link_map* map_of(const void* address) noexcept {
#ifdef DLFO_STRUCT_HAS_EH_DBASE
  dl_find_object found{};
  if (_dl_find_object(const_cast<void*>(address), &found) == 0) return found.dlfo_link_map;
  return nullptr;
#else
  Dl_info info{};
  void* map = nullptr;
  return dladdr1(address, &info, &map, RTLD_DL_LINKMAP) == 0 ? nullptr : static_cast<const link_map*>(map);
#endif
}

// The main program has one entry for as long as it runs; of a library, the name is compared.
bool is_same(const Library& known, const link_map& map) {
  return map.l_name == nullptr || map.l_name[0] == '\0' || known.path == map.l_name;
}

Library library_of(const void* address) {
  static const link_map kUnknown{};
  const link_map* map = map_of(address);
  const std::lock_guard lock(table().mutex);
  Library& library = table().libraries[map == nullptr ? &kUnknown : map];
  if (library.path.empty() || (map != nullptr && !is_same(library, *map))) {
    library.path = map == nullptr ? std::string("generated code") : path_of(*map);
    library.role = role_of(library.path);
    library.owner = {.resource = add_foreign_reporter(file_name(library.path), "main"),
                     .tag = intern_tag(known_name(library.path))};
  }
  return {.path = {}, .owner = library.owner, .role = library.role};
}

struct Search {
  static constexpr int kMostFrames = 24;
  Library found;
  int frames = 0;
};

_Unwind_Reason_Code look_at(_Unwind_Context* context, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  const auto address = _Unwind_GetIP(context);
  if (address == 0 || ++search.frames > Search::kMostFrames) return _URC_END_OF_STACK;
  try {
    // One before: a call may be the last thing in its library.
    const Library library = library_of(reinterpret_cast<const void*>(address - 1));
    if (library.role == Role::passage) return _URC_NO_REASON;
    search.found = library;
  } catch (const std::bad_alloc&) {
  }
  return _URC_END_OF_STACK;
}

}  // namespace

ForeignOwner owner_of_call(const void* return_address) noexcept {
  try {
    Library library = library_of(static_cast<const char*>(return_address) - 1);
    if (library.role == Role::passage) {
      Search search;
      search.found = library;
      search.found.role = Role::caller;
      _Unwind_Backtrace(&look_at, &search);
      library = search.found;
    }
    return library.role == Role::ours ? ForeignOwner{} : library.owner;
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace tensormem
