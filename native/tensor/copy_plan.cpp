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

namespace {

constexpr std::int32_t kNone = -1;

// Rows of `run` bytes, and planes of rows, that pitches can say on both sides; dimensions by number.
struct BoxChoice {
  std::int32_t row = kNone;
  std::int32_t plane = kNone;
  std::int64_t runs = 1;  // in one box
};

bool can_be_pitches(const CopyPlan& plan, std::int32_t dim, std::int64_t to_reach, std::int64_t from_reach) {
  const auto at = static_cast<std::size_t>(dim);
  return plan.to_stride[at] >= to_reach && plan.from_stride[at] >= from_reach;
}

// There are few dimensions: every pair is looked at.
BoxChoice choose_box(const CopyPlan& plan) {
  const auto run = static_cast<std::int64_t>(plan.run);
  BoxChoice best;
  for (std::int32_t row = plan.ndim - 1; row >= 0; --row) {
    const auto at = static_cast<std::size_t>(row);
    if (!can_be_pitches(plan, row, run, run)) continue;
    if (plan.length[at] > best.runs) best = {row, kNone, plan.length[at]};
    const std::int64_t to_reach = plan.to_stride[at] * (plan.length[at] - 1) + run;
    const std::int64_t from_reach = plan.from_stride[at] * (plan.length[at] - 1) + run;
    for (std::int32_t plane = plan.ndim - 1; plane >= 0; --plane) {
      if (plane == row || !can_be_pitches(plan, plane, to_reach, from_reach)) continue;
      const std::int64_t runs = plan.length[at] * plan.length[static_cast<std::size_t>(plane)];
      if (runs > best.runs) best = {row, plane, runs};
    }
  }
  return best;
}

// The dimension goes behind those that are left to loop over.
std::size_t take_dim(CopyPlan& plan, std::int32_t dim, std::int32_t* outer) {
  const auto last = static_cast<std::size_t>(--*outer);
  swap_dims(plan, static_cast<std::size_t>(dim), last);
  return last;
}

}  // namespace

bool as_box(CopyPlan& plan, CopyBox* box, std::int32_t* outer) noexcept {
  box->shape = {plan.run, 1, 1};
  box->to = {plan.to, 0, plan.run, plan.run};
  box->from = {plan.from, 0, plan.run, plan.run};
  *outer = plan.ndim;
  if (plan.ndim == 0) return true;
  const BoxChoice choice = choose_box(plan);
  if (choice.row == kNone) return false;
  // The one of the higher number first, so that the swap does not move the other.
  if (choice.plane > choice.row) {
    const std::size_t plane = take_dim(plan, choice.plane, outer);
    const std::size_t row = take_dim(plan, choice.row, outer);
    swap_dims(plan, plane, row);
  } else {
    (void)take_dim(plan, choice.row, outer);
    if (choice.plane != kNone) (void)take_dim(plan, choice.plane, outer);
  }
  const auto row = static_cast<std::size_t>(plan.ndim - 1);
  box->shape.height = static_cast<std::uint64_t>(plan.length[row]);
  box->to.row_pitch = box->to.plane_pitch = place_pitch(plan.to_stride[row]);
  box->from.row_pitch = box->from.plane_pitch = place_pitch(plan.from_stride[row]);
  if (choice.plane == kNone) return true;
  const auto plane = static_cast<std::size_t>(plan.ndim - 2);
  box->shape.depth = static_cast<std::uint64_t>(plan.length[plane]);
  box->to.plane_pitch = place_pitch(plan.to_stride[plane]);
  box->from.plane_pitch = place_pitch(plan.from_stride[plane]);
  return true;
}

}  // namespace tensormem
