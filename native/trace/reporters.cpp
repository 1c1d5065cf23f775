#include "trace/reporters.hpp"

#include <atomic>
#include <mutex>
#include <new>
#include <unordered_map>

#include "base/fork_guard.hpp"
#include "trace/record.hpp"
#include "trace/recorder.hpp"

namespace tensormem {

namespace {

struct Table {
  std::mutex mutex;
  ForkGuard fork_guard{mutex};
  std::unordered_map<std::uint32_t, Reporter> reporters;
};

// Never destroyed: resources may end after everything else.
Table& table() {
  static Table* const made = new Table;
  return *made;
}

void tell(const Reporter& reporter) noexcept {
  if (trace_is_on()) TraceRecorder::instance().define(reporter);
}

template <typename Change>
void change(std::uint32_t id, Change apply) noexcept {
  Reporter changed;
  try {
    const std::lock_guard lock(table().mutex);
    const auto found = table().reporters.find(id);
    if (found == table().reporters.end()) return;
    apply(found->second);
    changed = found->second;
  } catch (const std::bad_alloc&) {
    return;  // a name is lost, nothing else
  }
  tell(changed);
}

void record(TraceKind kind, std::uint32_t id) noexcept {
  TraceEvent event;
  event.kind = kind;
  event.resource = id;
  trace_record(&event);
}

std::uint32_t add(Reporter made) noexcept {
  static std::atomic<std::uint32_t> next{1};
  const std::uint32_t id = made.id = next.fetch_add(1, std::memory_order_relaxed);
  try {
    {
      const std::lock_guard lock(table().mutex);
      table().reporters.emplace(id, made);
    }
    tell(made);
  } catch (const std::bad_alloc&) {
    // It has no name in traces.
  }
  if (trace_is_on()) record(TraceKind::created, id);
  return id;
}

}  // namespace

std::uint32_t add_reporter(std::uint32_t below, std::string_view name, std::string_view space) noexcept {
  try {
    return add({.below = below, .name = std::string(name), .space = std::string(space)});
  } catch (const std::bad_alloc&) {
    return add({});  // it has no name in traces
  }
}

std::uint32_t add_foreign_reporter(std::string_view name, std::string_view space) noexcept {
  try {
    return add({.name = std::string(name), .space = std::string(space), .is_foreign = true});
  } catch (const std::bad_alloc&) {
    return add({.is_foreign = true});
  }
}

void rename_reporter(std::uint32_t id, std::string_view name) noexcept {
  change(id, [&](Reporter& reporter) { reporter.name = name; });
}

void move_reporter(std::uint32_t id, std::uint32_t below) noexcept {
  change(id, [&](Reporter& reporter) { reporter.below = below; });
}

void remove_reporter(std::uint32_t id) noexcept {
  {
    const std::lock_guard lock(table().mutex);
    table().reporters.erase(id);
  }
  if (trace_is_on()) record(TraceKind::destroyed, id);
}

std::string space_of_reporter(std::uint32_t id) noexcept {
  try {
    const std::lock_guard lock(table().mutex);
    const auto found = table().reporters.find(id);
    return found == table().reporters.end() ? std::string() : found->second.space;
  } catch (const std::bad_alloc&) {
    return {};
  }
}

void prepare_reporters() { (void)table(); }

std::vector<Reporter> all_reporters() {
  const std::lock_guard lock(table().mutex);
  std::vector<Reporter> all;
  all.reserve(table().reporters.size());
  for (const auto& [id, reporter] : table().reporters) all.push_back(reporter);
  return all;
}

}  // namespace tensormem
