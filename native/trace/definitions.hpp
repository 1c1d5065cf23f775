// Owns: names for the numbers in events, packed as a trace file wants them. Must not know: who defines what.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "trace/file_format.hpp"

namespace tensormem {

class Definitions {
 public:
  void add(DefinitionKind kind, std::uint32_t id, std::span<const std::uint32_t> numbers,
           std::initializer_list<std::string_view> texts) {
    const DefinitionHeader header{.kind = kind,
                                  .numbers = static_cast<std::uint16_t>(numbers.size()),
                                  .texts = static_cast<std::uint16_t>(texts.size()),
                                  .id = id};
    append(&header, sizeof header);
    append(numbers.data(), numbers.size_bytes());
    for (const std::string_view text : texts) {
      const auto length = static_cast<std::uint32_t>(text.size());
      append(&length, sizeof length);
      append(text.data(), text.size());
    }
    ++count_;
  }
  bool empty() const noexcept { return count_ == 0; }
  std::uint32_t count() const noexcept { return count_; }
  const std::vector<unsigned char>& bytes() const noexcept { return bytes_; }

 private:
  void append(const void* from, std::size_t count) {
    const auto* first = static_cast<const unsigned char*>(from);
    if (count != 0) bytes_.insert(bytes_.end(), first, first + count);
  }

  std::vector<unsigned char> bytes_;
  std::uint32_t count_ = 0;
};

}  // namespace tensormem
