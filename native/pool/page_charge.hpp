// Owns: the pages that are made by hand on one device, as budgets and traces see them: how much they are, and for each
// piece what it costs, from the claim to the end of the pages. In traces a piece is known by its handle.
// Must not know: how the pages are made, and where they are mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "alloc/block.hpp"
#include "base/interned.hpp"
#include "driver/driver.hpp"
#include "driver/memory_space.hpp"
#include "pool/budget.hpp"
#include "trace/reporters.hpp"
#include "trace/reports.hpp"

namespace tensormem {

class PageTally {
 public:
  PageTally(const Driver& driver, std::int32_t device)
      : budget_(std::make_shared<LocalBudget>(LocalBudget::kUnlimited)),
        reporter_(add_reporter(0, "VirtualMemoryManager", text_of(space_of(driver, device)))) {}
  ~PageTally() { remove_reporter(reporter_); }
  PageTally(const PageTally&) = delete;
  PageTally& operator=(const PageTally&) = delete;

  // Counts, and refuses nothing.
  BudgetPtr budget() const noexcept { return budget_; }
  std::uint64_t used() const noexcept { return budget_->used(); }
  std::uint32_t reporter() const noexcept { return reporter_; }

 private:
  const std::shared_ptr<LocalBudget> budget_;
  const std::uint32_t reporter_;
};

class PageCharge {
 public:
  // The bytes were claimed of `budget`, of which the tally's is a part.
  PageCharge(std::shared_ptr<PageTally> tally, BudgetPtr budget, std::uint64_t handle, std::uint64_t bytes,
             TagId tag) noexcept
      : tally_(std::move(tally)), budget_(std::move(budget)), handle_(kFirstHandle + handle), bytes_(bytes), tag_(tag) {
    report_allocate(tally_->reporter(), handle_, bytes_, handle_, tag_);
  }
  ~PageCharge() {
    report_deallocate(tally_->reporter(), handle_, bytes_, handle_, tag_);
    budget_->give_back(bytes_);
  }
  PageCharge(const PageCharge&) = delete;
  PageCharge& operator=(const PageCharge&) = delete;

 private:
  const std::shared_ptr<PageTally> tally_;
  const BudgetPtr budget_;
  const std::uint64_t handle_;
  const std::uint64_t bytes_;
  const TagId tag_;
};

}  // namespace tensormem
