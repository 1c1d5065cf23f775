// Owns: what each resource has handed out, counted along the events as they are written down, so that a reader can
// begin in the middle of a trace. Must not know: files.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trace/event.hpp"
#include "trace/file_format.hpp"

namespace tensormem {

class RunningTotals {
 public:
  void add(const TraceEvent& event) {
    const bool allocated = event.kind == TraceKind::allocate;
    if (!allocated && event.kind != TraceKind::deallocate) return;
    TotalsEntry& entry = of(event.resource, event.depth == 0);
    entry.nbytes += allocated ? static_cast<std::int64_t>(event.nbytes) : -static_cast<std::int64_t>(event.nbytes);
    entry.count += allocated ? 1 : -1;
  }
  std::vector<TotalsEntry> entries() const {
    std::vector<TotalsEntry> all;
    for (const auto& [key, entry] : totals_) {
      if (entry.count != 0 || entry.nbytes != 0) all.push_back(entry);
    }
    return all;
  }
  void clear() {
    totals_.clear();
    last_ = nullptr;
  }

 private:
  TotalsEntry& of(std::uint32_t resource, bool outermost) {
    const std::uint64_t key = static_cast<std::uint64_t>(resource) << 1 | (outermost ? 1U : 0U);
    if (last_ == nullptr || key != last_key_) {
      last_ = &totals_[key];
      last_key_ = key;
      last_->resource = resource;
      last_->outermost = outermost ? 1 : 0;
    }
    return *last_;
  }

  std::unordered_map<std::uint64_t, TotalsEntry> totals_;  // whose entries stay where they are
  std::uint64_t last_key_ = 0;
  TotalsEntry* last_ = nullptr;
};

}  // namespace tensormem
