// How a pool grows: in single flight. The first thread that misses asks the upstream for itself. Who misses meanwhile
// waits; when the chunk is there, what is left of it serves them, and one of those who still miss grows once more, for
// all of them, by what they need together or by the usual step. So unfinished growth is never counted twice, and
// nobody waits for more than two calls of the upstream. When the upstream refuses them together, each tries for itself,
// at once, for no more than it needs.
//   A chunk of a stream-ordered upstream is for one stream at first: there is one flight for each.
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/align.hpp"
#include "base/wait.hpp"
#include "resource/pool_memory_resource.hpp"
#include "resource/pool_miss.hpp"

namespace tensormem {

namespace {

// Longer than that only if the upstream waits for the thread that waits.
constexpr std::uint64_t kGrowthTimeoutNs = 10'000'000'000;

bool is_shortage(const Status& status) {
  return status.code() == Code::out_of_memory || status.code() == Code::out_of_budget ||
         status.code() == Code::out_of_physical_memory;
}

}  // namespace

thread_local const PoolMemoryResource::Growth* PoolMemoryResource::Growth::innermost = nullptr;

struct PoolMemoryResource::Flight {
  Origin origin;
  Misses boarded;
  std::uint64_t needed = 0;    // by all of them
  std::uint64_t generous = 0;  // that, or the usual step
  std::uint64_t alignment = kPoolChunkAlignment;
};

Status PoolMemoryResource::allocate_slowly(const AllocRequest& request, Block* block) {
  if (take_passed(request, block)) return {};
  Status grown;
  if (is_growing_here()) {
    grown = grow_alone(request, block);
  } else {
    const auto miss = std::make_shared<Miss>(request);
    TM_TRY(share_growth(miss));
    if (miss->state == Miss::State::served) {
      *block = miss->block;
      return {};
    }
    grown = miss->state == Miss::State::refused ? std::move(miss->why) : grow_alone(request, block);
  }
  // What another thread was just adding may have room for this one too, or is free again.
  bool others_grew = false;
  if (is_shortage(grown)) TM_TRY(wait_for_growth(&others_grew));
  if (others_grew) {
    if (take_passed(request, block)) return {};
    grown = grow_alone(request, block);
  }
  if (is_shortage(grown)) {
    // What nobody uses goes back before anybody is refused; what the upstream does not take is kept.
    std::uint64_t released = 0;
    (void)trim(0, &released).ok();
    if (released != 0) grown = grow_alone(request, block);
  }
  if (is_shortage(grown)) return allocate_without_growing(request, std::move(grown), block);
  return grown;
}

bool PoolMemoryResource::is_growing_here() const {
  for (const Growth* each = Growth::innermost; each != nullptr; each = each->outer) {
    if (&each->pool == this) return true;
  }
  return false;
}

Status PoolMemoryResource::wait_for_growth(bool* waited) {
  if (is_growing_here()) return {};
  std::uint64_t before = 0;
  std::uint64_t added = 0;
  const auto is_over = [&] {
    const std::lock_guard lock(lock_);
    return chunks_added_ != added || std::ranges::none_of(growths_, [&](std::uint64_t each) { return each < before; });
  };
  {
    const std::lock_guard lock(lock_);
    before = next_growth_;
    added = chunks_added_;
    if (growths_.empty()) return {};
  }
  *waited = true;
  if (is_over()) return {};
  Status ended = Wait::of_caller(kGrowthTimeoutNs).by_asking([&](bool* over) {
    *over = is_over();
    return Status();
  });
  return ended.code() == Code::timed_out ? Status() : std::move(ended);
}

// ---- together -----------------------------------------------------------------------------------------------------

PoolMemoryResource::Origin PoolMemoryResource::origin_of(const AllocRequest& request) const {
  // Where it makes no difference, chunks come on the default stream: the one of a request may not live as long.
  return {upstream_->is_stream_ordered() ? request.stream : kDefaultStream, room_of(request)};
}

std::size_t PoolMemoryResource::waiting_count() const {
  const std::lock_guard lock(lock_);
  return misses_.size();
}

// The threads that were growing when this process was forked are not in it.
void PoolMemoryResource::forget_flights_of_parent() {
  const auto here = static_cast<std::int64_t>(getpid());
  if (std::exchange(process_, here) == here) return;
  flights_.clear();
  misses_.clear();
  growths_.clear();
}

Status PoolMemoryResource::share_growth(const MissPtr& miss) {
  const Origin origin = origin_of(miss->request);
  const auto look = [&] {
    const std::lock_guard lock(lock_);
    return miss->state;
  };
  {
    const std::lock_guard lock(lock_);
    forget_flights_of_parent();
    misses_.push_back(miss);
    if (std::ranges::find(flights_, origin) == flights_.end()) {
      flights_.push_back(origin);
      miss->state = Miss::State::leads;
    }
  }
  Miss::State state = look();
  const auto is_open = [&] { return state == Miss::State::waiting || state == Miss::State::boarded; };
  if (is_open()) {
    Status waited = Wait::of_caller(kGrowthTimeoutNs).by_asking([&](bool* over) {
      state = look();
      *over = !is_open();
      return Status();
    });
    if (!waited.ok()) {
      const std::lock_guard lock(lock_);
      state = miss->state;
      if (is_open()) {
        miss->state = Miss::State::abandoned;
        std::erase(misses_, miss);
        return waited.code() == Code::timed_out ? Status() : std::move(waited);
      }
    }
  }
  if (state == Miss::State::leads) fly(origin);
  return {};
}

void PoolMemoryResource::fly(Origin origin) {
  Flight flight{.origin = origin, .boarded = {}};
  struct Landing {
    PoolMemoryResource& pool;
    Origin origin;
    ~Landing() { pool.end_flight(origin); }
  } landing{*this, origin};
  PoolChunks surplus;
  {
    Lock lock(lock_);
    (void)reap_locked(lock).ok();
    remove_free_slabs();
    board(&flight);
    if (flight.boarded.empty()) return;
    surplus = make_room(&flight);
  }
  if (flight.boarded.empty()) return;
  // What the upstream does not take back stays in the pool: the growth is tried all the same.
  std::uint64_t released = 0;
  (void)give_back(std::move(surplus), &released).ok();
  Status added = add_chunk(flight.generous, flight.alignment, flight.boarded);
  // No room for a generous chunk: what was asked for may still fit.
  const bool single = flight.boarded.size() == 1;
  if (!added.ok() && single && flight.needed != flight.generous)
    added = add_chunk(flight.needed, flight.alignment, flight.boarded);
  const std::lock_guard lock(lock_);
  for (const MissPtr& miss : flight.boarded) {
    if (miss->state != Miss::State::boarded) continue;
    miss->state = single && !added.ok() ? Miss::State::refused : Miss::State::alone;
    if (miss->state == Miss::State::refused) miss->why = std::move(added);
  }
}

// Small blocks first get what is left over beside large ones. Otherwise empty chunks go back, so that the pool takes no
// more than it ever had, or a little more than the most that was live.
PoolChunks PoolMemoryResource::make_room(Flight* flight) {
  if (flight->origin.room == kSmallRoom && options_.chunk_bytes == 0) {
    if (carve_slab(flight->generous, flight->boarded) || carve_slab(flight->needed, flight->boarded)) {
      std::erase_if(flight->boarded, [](const MissPtr& miss) { return miss->state != Miss::State::boarded; });
      if (flight->boarded.empty()) return {};
    }
  }
  const std::uint64_t usual = std::max(peak_reserved_, stats_.peak_bytes + stats_.peak_bytes / 50);
  if (reserved_ + flight->generous <= std::min(usual, options_.maximum_bytes)) return {};
  const std::uint64_t most = usual - std::min(usual, flight->generous);
  PoolChunks surplus = take_empty_chunks(most, false);
  if (reserved_ > options_.maximum_bytes - flight->generous) {
    PoolChunks more = take_empty_chunks(options_.maximum_bytes - flight->generous);
    surplus.insert(surplus.end(), more.begin(), more.end());
  }
  if (!surplus.empty()) ++swaps_;
  return surplus;
}

// Those of this flight are served with what is free by now, or counted in the chunk to come. What the pool may not grow
// by is refused: nothing else is under way that could help.
void PoolMemoryResource::board(Flight* flight) {
  const std::uint64_t room = options_.maximum_bytes - std::min(options_.maximum_bytes, reserved_ - idle_bytes());
  std::erase_if(misses_, [&](const MissPtr& miss) {
    const AllocRequest& request = miss->request;
    if (origin_of(request) != flight->origin) return false;
    if (take_own(request, &miss->block)) {
      miss->state = Miss::State::served;
      return true;
    }
    const std::uint64_t padding = !flight->boarded.empty() && request.alignment > kPoolGranule ? request.alignment : 0;
    const std::uint64_t need = align_up(range_bytes(request), kPoolGranule) + padding;
    if (need > room || flight->needed > room - need) {
      miss->state = Miss::State::refused;
      miss->why = out_of_memory(request.nbytes);
      return true;
    }
    flight->needed += need;
    flight->alignment = std::max(flight->alignment, request.alignment);
    miss->state = Miss::State::boarded;
    flight->boarded.push_back(miss);
    return true;
  });
  const std::uint64_t step = this->step(flight->origin.room, flight->needed);
  flight->generous = std::max(flight->needed, std::min(step, align_down(room, kPoolGranule)));
}

// The next one leads those who came meanwhile.
void PoolMemoryResource::end_flight(Origin origin) {
  const std::lock_guard lock(lock_);
  const auto next =
      std::ranges::find_if(misses_, [&](const MissPtr& miss) { return origin_of(miss->request) == origin; });
  if (next == misses_.end()) {
    std::erase(flights_, origin);
  } else {
    (*next)->state = Miss::State::leads;
  }
}

Status PoolMemoryResource::grow_alone(const AllocRequest& request, Block* block) {
  const auto miss = std::make_shared<Miss>(request);
  miss->state = Miss::State::boarded;
  const std::uint64_t need = align_up(range_bytes(request), kPoolGranule);
  TM_TRY(add_chunk(need, std::max(request.alignment, kPoolChunkAlignment), {miss}));
  *block = miss->block;
  return {};
}

}  // namespace tensormem
