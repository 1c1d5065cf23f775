// Owns: the host driver behind the rules of a GPU's: a handle is an atom, mapped whole and from 0, unmapped whole and
// alone. It checks every call itself, so that a manager that breaks the rules is caught. The k-th call may fail.
#pragma once

#include <cerrno>
#include <map>
#include <mutex>

#include "tests/failing_driver.hpp"

namespace tensormem::test {

class WholeHandleDriver final : public FailingDriver {
 public:
  void fail_mapping_at(std::uint64_t nth) {
    const std::lock_guard lock(mutex_);
    mapping_calls_ = 0;
    failing_call_ = nth;
  }
  bool has_failed_mapping() const {
    const std::lock_guard lock(mutex_);
    return failing_call_ != 0 && mapping_calls_ >= failing_call_;
  }
  std::size_t mapped_count() const {
    const std::lock_guard lock(mutex_);
    return sizes_.size();
  }

  Status granularity(std::int32_t device, Granularity* granularity) override {
    TM_TRY(host_driver().granularity(device, granularity));
    granularity->whole_handles = true;
    return {};
  }
  Status map(std::uint64_t address, std::uint64_t size, PhysicalHandle physical, std::uint64_t offset) override {
    const std::lock_guard lock(mutex_);
    PhysicalInfo info;
    TM_TRY(host_driver().physical_info(physical, &info));
    if (offset != 0 || size != info.size) return broken_rule();
    TM_TRY(next_call());
    TM_TRY(host_driver().map(address, size, physical, offset));
    sizes_[address] = size;
    return {};
  }
  Status unmap(std::uint64_t address, std::uint64_t size) override {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(address);
    if (found == sizes_.end() || found->second != size) return broken_rule();
    TM_TRY(next_call());
    TM_TRY(host_driver().unmap(address, size));
    sizes_.erase(found);
    return {};
  }
  Status set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) override {
    const std::lock_guard lock(mutex_);
    std::uint64_t end = address;
    for (auto at = sizes_.find(address); at != sizes_.end() && at->first == end && end < address + size; ++at) {
      end += at->second;
    }
    if (end != address + size) return broken_rule();
    TM_TRY(next_call());
    return host_driver().set_access(address, size, device, access);
  }

 private:
  static Status broken_rule() { return Status::fail(Code::internal_error, "a handle is an atom"); }
  Status next_call() {
    return ++mapping_calls_ == failing_call_ ? Status::driver_error(EIO, "a planned failure") : Status();
  }

  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> sizes_;
  std::uint64_t mapping_calls_ = 0;
  std::uint64_t failing_call_ = 0;
};

}  // namespace tensormem::test
