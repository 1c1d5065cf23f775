#include "tensor/host_copy.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace tensormem {

namespace {

// A second thread costs some 20 us to start, which copies of these sizes have to spare.
constexpr std::uint64_t kTwoThreadsDense = 4ULL << 20;
constexpr std::uint64_t kTwoThreadsStrided = 2ULL << 20;
constexpr std::uint64_t kPartBytes = 256ULL << 10;
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

// Elements with gaps into a place without: four are read before any is written, which the processor does side by side.
template <std::uint64_t width>
void gather(char* __restrict to, const char* __restrict from, std::int64_t count, std::int64_t step) {
  if (step == 2 * static_cast<std::int64_t>(width)) {
    // Every other element: with the step known, the compiler shuffles whole vectors.
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * width, from + i * 2 * width, width);
    return;
  }
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    char four[4 * width];
    for (std::int64_t j = 0; j < 4; ++j) std::memcpy(four + j * width, from + j * step, width);
    std::memcpy(to, four, 4 * width);
    to += 4 * width;
    from += 4 * step;
  }
  for (; i < count; ++i) {
    std::memcpy(to, from, width);
    to += width;
    from += step;
  }
}

// `width` is 0 when it is only known at run time.
template <std::uint64_t width>
void copy_row(Bytes to, const char* from, Dim row, std::uint64_t run) {
  if constexpr (width != 0) {
    if (row.to == static_cast<std::int64_t>(width)) return gather<width>(to, from, row.length, row.from);
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

std::size_t longest_dim(const CopyPlan& plan) {
  std::size_t longest = 0;
  for (std::size_t i = 1; i < static_cast<std::size_t>(plan.ndim); ++i) {
    // The outermost one keeps long runs whole, unless it is much too short.
    if (plan.length[i] > 8 * plan.length[longest]) longest = i;
  }
  return longest;
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

// One of `count` even parts of the work, along its longest dimension.
CopyPlan part_of(const CopyPlan& plan, std::uint64_t index, std::uint64_t count) {
  CopyPlan part = plan;
  if (plan.ndim == 0) {
    // A cache line belongs to one part.
    const std::uint64_t step = (plan.run / count + 63) & ~63ULL;
    const std::uint64_t first = std::min(plan.run, index * step);
    part.run = std::min(plan.run - first, step);
    part.to += first;
    part.from += first;
    return part;
  }
  const std::size_t dim = longest_dim(plan);
  const auto length = static_cast<std::uint64_t>(plan.length[dim]);
  const std::uint64_t first = length * index / count;
  const std::uint64_t end = length * (index + 1) / count;
  part.length[dim] = static_cast<std::int64_t>(end - first);
  part.to += first * static_cast<std::uint64_t>(plan.to_stride[dim]);
  part.from += first * static_cast<std::uint64_t>(plan.from_stride[dim]);
  return part;
}

// Work that two threads take parts of. Whoever began it never waits for a thread that has not taken a part yet: on a
// busy machine the second one may come when all is done, and then finds nothing left.
struct SharedWork {
  explicit SharedWork(const CopyPlan& whole, std::uint64_t parts) : plan(whole), count(parts) {}

  void take_parts() {
    for (std::uint64_t index = next.fetch_add(1); index < count; index = next.fetch_add(1)) {
      run_alone(part_of(plan, index, count));
      if (done.fetch_add(1, std::memory_order_release) + 1 == count) done.notify_all();
    }
  }
  void wait() {
    for (std::uint64_t seen = done.load(std::memory_order_acquire); seen != count;
         seen = done.load(std::memory_order_acquire)) {
      done.wait(seen);
    }
  }

  const CopyPlan plan;
  const std::uint64_t count;
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> done{0};
};

std::uint64_t part_count(const CopyPlan& plan) {
  const std::uint64_t wanted = plan.nbytes() / kPartBytes;
  if (plan.ndim == 0) return wanted;
  return std::min(wanted, static_cast<std::uint64_t>(plan.length[longest_dim(plan)]));
}

void run_on_two_threads(const CopyPlan& plan, std::uint64_t parts) {
  auto work = std::make_shared<SharedWork>(plan, parts);
  std::thread([work] { work->take_parts(); }).detach();
  work->take_parts();
  work->wait();
}

}  // namespace

void run_on_host(const CopyPlan& plan) noexcept {
  if (plan.run == 0) return;
  static const bool several = std::thread::hardware_concurrency() > 1;
  const std::uint64_t least = plan.ndim == 0 ? kTwoThreadsDense : kTwoThreadsStrided;
  const std::uint64_t parts = several && plan.nbytes() >= least ? part_count(plan) : 1;
  if (parts < 2) return run_alone(plan);
  try {
    run_on_two_threads(plan, parts);
  } catch (...) {
    // No second thread is to be had: nothing has been copied yet.
    run_alone(plan);
  }
}

}  // namespace tensormem
