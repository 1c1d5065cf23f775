// Owns: who reports: a number for every resource and address range of the process, what it is called, the space its
// memory is in, and which one stands below it, so that a reader can draw the tree. Kept whether or not anybody records,
// because a recording may begin later. Must not know: what reporters do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tensormem {

struct Reporter {
  std::uint32_t id = 0;
  std::uint32_t below = 0;  // 0: nothing
  std::string name;
  std::string space;  // "main", "pinned", "gpu:1", "managed"
  bool is_foreign = false;
};

// Its number: never 0, never given twice.
std::uint32_t add_reporter(std::uint32_t below, std::string_view name, std::string_view space) noexcept;
void rename_reporter(std::uint32_t id, std::string_view name) noexcept;
void move_reporter(std::uint32_t id, std::uint32_t below) noexcept;
void remove_reporter(std::uint32_t id) noexcept;
// The space of a reporter; "" when there is none.
std::string space_of_reporter(std::uint32_t id) noexcept;
std::vector<Reporter> all_reporters();
// The same for a library whose memory is only watched: it may keep what it has to the end.
std::uint32_t add_foreign_reporter(std::string_view name, std::string_view space) noexcept;
// Makes the table now: its lock must be older than those it is taken inside.
void prepare_reporters();

}  // namespace tensormem
