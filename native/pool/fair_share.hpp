// Owns: who is asked to give back when one limit has no room left, and how much. Pure: numbers in, numbers out; the
// budgets of one process and those of several use the same rule.
//   The fair share: everybody's guarantee, and the rest poured out by priority among those who want more than theirs,
//   until each has what it wants or nothing is left. Nobody is asked to fall below it, but for the last resort: when
//   somebody above its share gave nothing back, lower priorities stand in for it, down to their guarantees.
// Must not know: locks, callbacks, processes.
#pragma once

#include <cstdint>
#include <vector>

namespace tensormem {

// For sums of what others wrote: too large is as good as full.
constexpr std::uint64_t add_saturated(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? ~0ULL : sum;
}

struct Claimant {
  std::uint64_t used = 0;
  std::uint64_t guaranteed = 0;
  std::uint64_t maximum = 0;
  std::uint32_t priority = 1;  // at least 1; the weight of its share
  bool can_be_asked = false;
};

struct Ask {
  std::uint64_t bytes;
  std::size_t who;
};

inline constexpr std::size_t kNobody = ~std::size_t{0};

// `requester` (or nobody) is counted with `bytes` more than it uses.
std::vector<std::uint64_t> fair_shares(const std::vector<Claimant>& claimants, std::uint64_t limit,
                                       std::size_t requester, std::uint64_t bytes);

enum class AskRound : std::uint8_t { fair, last_resort };

// Everybody who can be asked for a part of `shortage`, in the order of asking: lowest priority first, then who is
// furthest above its fair share. The requester is asked for its own like the others, but last when the claim leaves it
// within its share. As a last resort, for a claim within the requester's share: those of lower priority than it.
std::vector<Ask> whom_to_ask(const std::vector<Claimant>& claimants, std::uint64_t limit, std::size_t requester,
                             std::uint64_t bytes, std::uint64_t shortage, AskRound round);

// True while this thread is in a callback of `arbiter`. What it claims meanwhile asks nobody else, so that two
// callbacks cannot ask one another for ever.
bool is_asking(const void* arbiter) noexcept;

class AskingScope {
 public:
  explicit AskingScope(const void* arbiter) noexcept;
  ~AskingScope();
  AskingScope(const AskingScope&) = delete;
  AskingScope& operator=(const AskingScope&) = delete;

 private:
  friend bool is_asking(const void* arbiter) noexcept;
  const void* const arbiter_;
  const AskingScope* const outer_;
};

}  // namespace tensormem
