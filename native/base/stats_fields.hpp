// Owns: the one list of counters that every resource keeps. The struct, the Python named tuple, `doctor` and the
// reference page are all made from it. Always current_/peak_/total_.
#pragma once

#include <cstdint>

#define TM_STATS_FIELDS(X)                                                              \
  X(current_bytes, "bytes handed out and not yet given back, retired blocks included")  \
  X(current_count, "blocks handed out and not yet given back, retired blocks included") \
  X(peak_bytes, "highest current_bytes so far")                                         \
  X(peak_count, "highest current_count so far")                                         \
  X(total_bytes, "bytes ever handed out")                                               \
  X(total_count, "blocks ever handed out")                                              \
  X(retired_bytes, "bytes deallocated and waiting for a stream to pass")                \
  X(retired_count, "blocks deallocated and waiting for a stream to pass")

namespace tensormem {

struct Stats {
#define TM_FIELD(name, meaning) std::uint64_t name = 0;
  TM_STATS_FIELDS(TM_FIELD)
#undef TM_FIELD

  void on_allocate(std::uint64_t nbytes) {
    current_bytes += nbytes;
    current_count += 1;
    if (current_bytes > peak_bytes) peak_bytes = current_bytes;
    if (current_count > peak_count) peak_count = current_count;
    total_bytes += nbytes;
    total_count += 1;
  }
  void on_retire(std::uint64_t nbytes) {
    retired_bytes += nbytes;
    retired_count += 1;
  }
  void on_revive(std::uint64_t nbytes) {
    retired_bytes -= nbytes;
    retired_count -= 1;
  }
  void on_reap(std::uint64_t nbytes) {
    on_revive(nbytes);
    on_free(nbytes);
  }
  void on_free(std::uint64_t nbytes) {
    current_bytes -= nbytes;
    current_count -= 1;
  }
};

struct StatsField {
  const char* name;
  const char* meaning;
  std::uint64_t Stats::* member;
};

inline constexpr StatsField kStatsFields[] = {
#define TM_ROW(name, meaning) {#name, meaning, &Stats::name},
    TM_STATS_FIELDS(TM_ROW)
#undef TM_ROW
};
inline constexpr int kStatsFieldCount = static_cast<int>(sizeof(kStatsFields) / sizeof(kStatsFields[0]));

inline std::uint64_t stats_value(const Stats& stats, int field) { return stats.*kStatsFields[field].member; }

}  // namespace tensormem
