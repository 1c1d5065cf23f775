// Owns: short texts (tags) as small numbers, process-wide and for ever: the same text always has the same number, and a
// number can sit in a block or a trace record. 0 is "untagged".
#pragma once

#include <cstdint>
#include <string_view>

namespace tensormem {

using TagId = std::uint32_t;
inline constexpr TagId kUntagged = 0;

// The number of `text`; kUntagged when there is no memory for a new one.
TagId intern_tag(std::string_view text) noexcept;
// The text of a number; "untagged" for 0 and for a number never given. Valid for ever.
std::string_view tag_text(TagId tag) noexcept;
// How many numbers are in use, "untagged" included.
std::uint32_t tag_count() noexcept;

}  // namespace tensormem
