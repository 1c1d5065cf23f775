// Owns: that a call which lets the GIL go counts as a user of the object it works with: what is shared stays until the
// call is over, and whoever would close it meanwhile can see that it is used.
// Must not know: what the object is.
#pragma once

#include <memory>
#include <utility>

#include "_core/export_count.hpp"

namespace tensormem {

template <typename Object>
class SharedUse {
 public:
  SharedUse() = default;  // of nothing
  // `uses` has counted this use, and lives as long as it.
  SharedUse(std::shared_ptr<Object> object, ExportCount* uses) : object_(std::move(object)), uses_(uses) {}
  SharedUse(SharedUse&& other) noexcept
      : object_(std::move(other.object_)), uses_(std::exchange(other.uses_, nullptr)) {}
  SharedUse& operator=(SharedUse&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(uses_, other.uses_);
    return *this;
  }
  ~SharedUse() {
    if (uses_ != nullptr) uses_->remove();
  }

  Object* get() const { return object_.get(); }
  const std::shared_ptr<Object>& shared() const { return object_; }

 private:
  std::shared_ptr<Object> object_;
  ExportCount* uses_ = nullptr;
};

}  // namespace tensormem
