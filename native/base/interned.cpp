#include "base/interned.hpp"

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/fork_guard.hpp"

namespace tensormem {

namespace {

struct TagTable {
  std::mutex mutex;  // not a shared one: a forked child is another thread to those, and could not unlock it
  ForkGuard fork_guard{mutex};
  std::deque<std::string> texts{"untagged"};  // a deque never moves its elements, so views stay valid
  std::unordered_map<std::string_view, TagId> ids{{texts.front(), kUntagged}};
};

// Never destroyed: blocks may be freed while the process exits.
TagTable& table() {
  static TagTable* const instance = new TagTable;
  return *instance;
}

}  // namespace

TagId intern_tag(std::string_view text) noexcept {
  TagTable& tags = table();
  {
    const std::lock_guard lock(tags.mutex);
    if (const auto found = tags.ids.find(text); found != tags.ids.end()) return found->second;
  }
  try {
    const std::lock_guard lock(tags.mutex);
    if (const auto found = tags.ids.find(text); found != tags.ids.end()) return found->second;
    tags.texts.emplace_back(text);
    const auto id = static_cast<TagId>(tags.texts.size() - 1);
    tags.ids.emplace(tags.texts.back(), id);
    return id;
  } catch (const std::bad_alloc&) {
    return kUntagged;
  }
}

std::string_view tag_text(TagId tag) noexcept {
  TagTable& tags = table();
  const std::lock_guard lock(tags.mutex);
  return tag < tags.texts.size() ? std::string_view(tags.texts[tag]) : std::string_view(tags.texts.front());
}

std::uint32_t tag_count() noexcept {
  TagTable& tags = table();
  const std::lock_guard lock(tags.mutex);
  return static_cast<std::uint32_t>(tags.texts.size());
}

}  // namespace tensormem
