#include "driver/host/fault_plan.hpp"

#include <cstring>
#include <iterator>

namespace tensormem::host::fault_plan {

std::atomic<bool> g_armed{false};

namespace {

constexpr const char* kNames[] = {
#define TM_NAME(identifier, name) name,
    TM_SYSTEM_CALLS(TM_NAME)
#undef TM_NAME
};

std::atomic<SystemCall> g_kind{SystemCall::any};
std::atomic<std::uint64_t> g_nth{0};
std::atomic<int> g_error{0};
std::atomic<std::uint64_t> g_calls{0};
std::atomic<bool> g_fired{false};

}  // namespace

void arm(SystemCall kind, std::uint64_t nth, int error) noexcept {
  g_armed.store(false);
  g_kind.store(kind);
  g_nth.store(nth);
  g_error.store(error);
  g_calls.store(0);
  g_fired.store(false);
  g_armed.store(true);
}

void disarm() noexcept { g_armed.store(false); }

std::uint64_t calls_made() noexcept { return g_calls.load(); }

bool has_fired() noexcept { return g_fired.load(); }

int kind_count() noexcept { return static_cast<int>(std::size(kNames)); }

const char* kind_name(int kind) noexcept { return kind >= 0 && kind < kind_count() ? kNames[kind] : nullptr; }

int kind_from_name(const char* name) noexcept {
  for (int kind = 0; kind < kind_count(); ++kind) {
    if (name != nullptr && std::strcmp(name, kNames[kind]) == 0) return kind;
  }
  return -1;
}

int consult_slow(SystemCall call) noexcept {
  const SystemCall kind = g_kind.load();
  if (kind != SystemCall::any && kind != call) return 0;
  if (g_calls.fetch_add(1) + 1 != g_nth.load()) return 0;
  g_fired.store(true);
  return g_error.load();
}

}  // namespace tensormem::host::fault_plan
