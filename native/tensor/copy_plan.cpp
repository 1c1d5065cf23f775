#include "tensor/copy_plan.hpp"

#include <algorithm>
#include <utility>

namespace tensormem {

namespace {

void swap_dims(CopyPlan& plan, std::size_t a, std::size_t b) {
  std::swap(plan.length[a], plan.length[b]);
  std::swap(plan.to_stride[a], plan.to_stride[b]);
  std::swap(plan.from_stride[a], plan.from_stride[b]);
}

// Dimensions of one element say nothing; backward ones of the destination are walked from their other end.
void add_dim(CopyPlan& plan, std::int64_t length, std::int64_t to, std::int64_t from) {
  if (length == 1) return;
  if (to < 0) {
    plan.to += static_cast<std::uint64_t>((length - 1) * to);
    plan.from += static_cast<std::uint64_t>((length - 1) * from);
    to = -to;
    from = -from;
  }
  const auto at = static_cast<std::size_t>(plan.ndim++);
  plan.length[at] = length;
  plan.to_stride[at] = to;
  plan.from_stride[at] = from;
}

// Insertion sort: there are few, and they are mostly in order. Descending strides of the destination.
void sort_dims(CopyPlan& plan) {
  for (std::size_t i = 1; i < static_cast<std::size_t>(plan.ndim); ++i) {
    for (std::size_t j = i; j > 0 && plan.to_stride[j - 1] < plan.to_stride[j]; --j) swap_dims(plan, j - 1, j);
  }
}

// Neighbours that continue one another on both sides become one.
void merge_dims(CopyPlan& plan) {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < static_cast<std::size_t>(plan.ndim); ++i) {
    const bool to_continues = plan.to_stride[kept] == plan.to_stride[i] * plan.length[i];
    const bool from_continues = plan.from_stride[kept] == plan.from_stride[i] * plan.length[i];
    if (to_continues && from_continues) {
      plan.length[kept] *= plan.length[i];
    } else {
      plan.length[++kept] = plan.length[i];
    }
    plan.to_stride[kept] = plan.to_stride[i];
    plan.from_stride[kept] = plan.from_stride[i];
  }
  plan.ndim = static_cast<std::int32_t>(kept + 1);
}

void absorb_run(CopyPlan& plan) {
  if (plan.ndim == 0) return;
  const auto last = static_cast<std::size_t>(plan.ndim - 1);
  const auto run = static_cast<std::int64_t>(plan.run);
  if (plan.to_stride[last] != run || plan.from_stride[last] != run) return;
  plan.run *= static_cast<std::uint64_t>(plan.length[last]);
  --plan.ndim;
}

bool runs_are_apart(const CopyPlan& plan) {
  auto reach = static_cast<std::int64_t>(plan.run);
  for (std::int32_t i = plan.ndim - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    if (plan.to_stride[at] < reach) return false;
    reach = plan.to_stride[at] * (plan.length[at] - 1) + reach;
  }
  return true;
}

std::uint64_t place_pitch(std::int64_t stride) { return static_cast<std::uint64_t>(stride); }

}  // namespace

std::uint64_t CopyPlan::nbytes() const noexcept {
  std::uint64_t total = run;
  for (std::int32_t i = 0; i < ndim; ++i) total *= static_cast<std::uint64_t>(length[static_cast<std::size_t>(i)]);
  return total;
}

bool CopyPlan::is_valid() const noexcept {
  if (ndim < 0 || ndim > kMaxDims) return false;
  if (run == 0) return ndim == 0;
  return runs_are_apart(*this);
}

Status plan_copy(std::int32_t ndim, const std::int64_t* shape, std::uint64_t item_bytes, const StridedPlace& to,
                 const StridedPlace& from, CopyPlan* plan) noexcept {
  CopyPlan& made = *plan;
  made.to = to.address;
  made.from = from.address;
  made.run = item_bytes;
  made.ndim = 0;
  auto follows = static_cast<std::int64_t>(item_bytes);
  for (std::int32_t i = ndim - 1; i >= 0; --i) {
    if (shape[i] == 0) {
      made.run = 0;
      made.ndim = 0;
      return {};
    }
    add_dim(made, shape[i], to.byte_strides == nullptr ? follows : to.byte_strides[i],
            from.byte_strides == nullptr ? follows : from.byte_strides[i]);
    follows *= shape[i];
  }
  if (made.ndim > 0) {
    std::reverse(made.length.begin(), made.length.begin() + made.ndim);
    std::reverse(made.to_stride.begin(), made.to_stride.begin() + made.ndim);
    std::reverse(made.from_stride.begin(), made.from_stride.begin() + made.ndim);
    sort_dims(made);
    if (!runs_are_apart(made)) {
      return Status::fail(Code::invalid_argument, "elements of the destination share bytes");
    }
    merge_dims(made);
    absorb_run(made);
  }
  return {};
}

bool as_box(const CopyPlan& plan, CopyBox* box, std::int32_t* outer) noexcept {
  box->shape = {plan.run, 1, 1};
  box->to = {plan.to, 0, plan.run, plan.run};
  box->from = {plan.from, 0, plan.run, plan.run};
  *outer = plan.ndim;
  std::uint64_t reach = plan.run;
  for (int level = 0; level < 2 && *outer > 0; ++level) {
    const auto at = static_cast<std::size_t>(*outer - 1);
    const std::int64_t stride = plan.from_stride[at];
    if (stride < 0 || place_pitch(stride) < reach) return level > 0;
    const auto length = static_cast<std::uint64_t>(plan.length[at]);
    if (level == 0) {
      box->shape.height = length;
      box->to.row_pitch = box->to.plane_pitch = place_pitch(plan.to_stride[at]);
      box->from.row_pitch = box->from.plane_pitch = place_pitch(stride);
    } else {
      box->shape.depth = length;
      box->to.plane_pitch = place_pitch(plan.to_stride[at]);
      box->from.plane_pitch = place_pitch(stride);
    }
    reach = place_pitch(stride) * (length - 1) + reach;
    --*outer;
  }
  return true;
}

}  // namespace tensormem
