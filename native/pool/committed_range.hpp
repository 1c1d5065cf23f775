// Owns: how much of one range of addresses has memory, as its budget and traces see it: claimed before it is made, and
// in traces one block at the base of the range, which ends and begins again when it grows or shrinks. What is left ends
// with the object.
// Must not know: how the memory is made. Not thread-safe: the owner's lock guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/interned.hpp"
#include "base/invariant.hpp"
#include "pool/budget.hpp"
#include "trace/reporters.hpp"
#include "trace/reports.hpp"

namespace tensormem {

class CommittedRange {
 public:
  // `reporter` is the number of the range in traces; from now on it has this name there.
  CommittedRange(BudgetPtr budget, std::uint32_t reporter, std::string_view name, std::uint64_t base, TagId tag)
      : budget_(std::move(budget)), reporter_(reporter), base_(base), tag_(tag) {
    rename_reporter(reporter_, name);
  }
  ~CommittedRange() {
    TM_WALK(is_valid());
    shrink(0);
  }
  CommittedRange(const CommittedRange&) = delete;
  CommittedRange& operator=(const CommittedRange&) = delete;

  // Before memory is made. Hold no lock that a member of the budget may need.
  Status claim(std::uint64_t bytes) noexcept { return budget_->claim(bytes); }
  // It could not be made.
  void give_back(std::uint64_t bytes) noexcept { budget_->give_back(bytes); }
  // It was made.
  void grow(std::uint64_t nbytes) noexcept { set(nbytes); }
  // It is gone.
  void shrink(std::uint64_t nbytes) noexcept {
    const std::uint64_t gone = nbytes_ - std::min(nbytes_, nbytes);
    set(nbytes);
    if (gone != 0) budget_->give_back(gone);
  }

  bool is_valid() const noexcept {
    return nbytes_ <= peak_ && budget_ != nullptr && (generation_ != 0) == (peak_ != 0);
  }
  std::uint64_t nbytes() const noexcept { return nbytes_; }
  std::uint64_t peak() const noexcept { return peak_; }
  TagId tag() const noexcept { return tag_; }
  const Budget& budget() const noexcept { return *budget_; }

 private:
  void set(std::uint64_t nbytes) noexcept {
    if (nbytes == nbytes_) return;
    if (nbytes_ != 0) report_deallocate(reporter_, base_, nbytes_, generation_, tag_);
    if (nbytes != 0) report_allocate(reporter_, base_, nbytes, ++generation_, tag_);
    nbytes_ = nbytes;
    peak_ = std::max(peak_, nbytes);
  }

  const BudgetPtr budget_;
  const std::uint32_t reporter_;
  const std::uint64_t base_;
  const TagId tag_;
  std::uint64_t nbytes_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t generation_ = 0;  // told apart in traces: each size is a block of its own there
};

}  // namespace tensormem
