#include "tensor/host_copy.hpp"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

namespace tensormem {

namespace {

// A second thread costs some 20 us to start and end, which a copy of this size has twice to spare.
constexpr std::uint64_t kTwoThreads = 1ULL << 20;
// Rows of a tile: enough to use every byte of the cache lines it reads, few enough to stay in the first-level cache.
constexpr std::int64_t kTile = 32;

using Bytes = char*;

Bytes at(std::uint64_t address) { return reinterpret_cast<Bytes>(address); }

struct Dim {
  std::int64_t length;
  std::int64_t to;
  std::int64_t from;
};

Dim dim_of(const CopyPlan& plan, std::int32_t index) {
  const auto i = static_cast<std::size_t>(index);
  return {plan.length[i], plan.to_stride[i], plan.from_stride[i]};
}

// `width` is 0 when it is only known at run time.
template <std::uint64_t width>
void copy_row(Bytes to, const char* from, Dim row, std::uint64_t run) {
  if (width != 0 && row.to == static_cast<std::int64_t>(width)) {
    // The compiler turns a destination without gaps into wide stores.
    for (std::int64_t i = 0; i < row.length; ++i) std::memcpy(to + i * width, from + i * row.from, width);
    return;
  }
  for (std::int64_t i = 0; i < row.length; ++i) {
    std::memcpy(to + i * row.to, from + i * row.from, width != 0 ? width : run);
  }
}

template <std::uint64_t width>
void copy_plane(Bytes to, const char* from, Dim rows, Dim row, std::uint64_t run) {
  for (std::int64_t i = 0; i < rows.length; ++i) copy_row<width>(to + i * rows.to, from + i * rows.from, row, run);
}

// The source runs along `rows`, the destination along `row`: a tile of both stays in the cache.
template <std::uint64_t width>
void copy_crossed(Bytes to, const char* from, Dim rows, Dim row, std::uint64_t run) {
  for (std::int64_t i = 0; i < rows.length; i += kTile) {
    const std::int64_t tall = rows.length - i < kTile ? rows.length - i : kTile;
    for (std::int64_t j = 0; j < row.length; j += kTile) {
      const std::int64_t wide = row.length - j < kTile ? row.length - j : kTile;
      copy_plane<width>(to + i * rows.to + j * row.to, from + i * rows.from + j * row.from, {tall, rows.to, rows.from},
                        {wide, row.to, row.from}, run);
    }
  }
}

using PlaneCopy = void (*)(Bytes, const char*, Dim, Dim, std::uint64_t);

template <std::uint64_t width>
PlaneCopy either(bool crossed) {
  return crossed ? copy_crossed<width> : copy_plane<width>;
}

PlaneCopy for_width(std::uint64_t run, bool crossed) {
  switch (run) {
    case 1:
      return either<1>(crossed);
    case 2:
      return either<2>(crossed);
    case 4:
      return either<4>(crossed);
    case 8:
      return either<8>(crossed);
    case 16:
      return either<16>(crossed);
    default:
      return either<0>(crossed);
  }
}

// The dimension along which the source's neighbours lie.
std::int32_t nearest_in_source(const CopyPlan& plan) {
  std::int32_t best = plan.ndim - 1;
  std::int64_t least = INT64_MAX;
  for (std::int32_t i = 0; i < plan.ndim; ++i) {
    const std::int64_t stride = std::llabs(plan.from_stride[static_cast<std::size_t>(i)]);
    if (stride == 0 || stride >= least) continue;
    least = stride;
    best = i;
  }
  return best;
}

// Every dimension but the two of the plane, one step at a time.
void walk(const CopyPlan& plan, std::int32_t level, std::int32_t second, Bytes to, const char* from, PlaneCopy copy,
          Dim rows, Dim row) {
  if (level == second) return walk(plan, level + 1, second, to, from, copy, rows, row);
  if (level >= plan.ndim - 1) return copy(to, from, rows, row, plan.run);
  const Dim dim = dim_of(plan, level);
  for (std::int64_t i = 0; i < dim.length; ++i) {
    walk(plan, level + 1, second, to + i * dim.to, from + i * dim.from, copy, rows, row);
  }
}

void run_alone(const CopyPlan& plan) {
  if (plan.ndim == 0) {
    std::memmove(at(plan.to), at(plan.from), plan.run);
    return;
  }
  const Dim row = dim_of(plan, plan.ndim - 1);
  const std::int32_t nearest = nearest_in_source(plan);
  const bool crossed = nearest != plan.ndim - 1;
  const std::int32_t second = crossed ? nearest : plan.ndim - 2;
  const Dim rows = second >= 0 ? dim_of(plan, second) : Dim{1, 0, 0};
  walk(plan, 0, second, at(plan.to), at(plan.from), for_width(plan.run, crossed), rows, row);
}

// The second half of the work; `first` becomes the first.
CopyPlan split(CopyPlan& first) {
  CopyPlan second = first;
  if (first.ndim == 0) {
    // A cache line belongs to one of the two.
    first.run = (first.run / 2) & ~63ULL;
    second.run -= first.run;
    second.to += first.run;
    second.from += first.run;
    return second;
  }
  std::size_t longest = 0;
  for (std::size_t i = 1; i < static_cast<std::size_t>(first.ndim); ++i) {
    if (first.length[i] > 2 * first.length[longest]) longest = i;
  }
  first.length[longest] /= 2;
  second.length[longest] -= first.length[longest];
  second.to += static_cast<std::uint64_t>(first.length[longest] * first.to_stride[longest]);
  second.from += static_cast<std::uint64_t>(first.length[longest] * first.from_stride[longest]);
  return second;
}

}  // namespace

void run_on_host(const CopyPlan& plan) noexcept {
  if (plan.run == 0) return;
  static const bool several = std::thread::hardware_concurrency() > 1;
  if (!several || plan.nbytes() < kTwoThreads) return run_alone(plan);
  CopyPlan first = plan;
  const CopyPlan second = split(first);
  try {
    std::thread other(run_alone, std::cref(second));
    run_alone(first);
    other.join();
  } catch (...) {
    // No second thread is to be had: nothing has been copied yet.
    run_alone(plan);
  }
}

}  // namespace tensormem
