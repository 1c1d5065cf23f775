// Owns: the rule by which a block may be used, freed and reused on asynchronous streams.
//   A read waits for the last write of another stream; a write waits for all reads of other streams too; the end of a
//   block waits for everything. Waiting is queued on the stream, never done by synchronizing a device.
// Must not know: tables, pools, budgets. Callers hold their own lock around BlockUses and never around `wait_for`,
// which blocks on a stream that runs inline.
#pragma once

#include "base/ending.hpp"
#include "order/block_uses.hpp"

namespace tensormem {

class StreamOrder {
 public:
  StreamOrder(Driver& driver, std::int32_t device) : driver_(driver), events_(driver, device) {}

  // Work queued on `stream` after this starts after all of `uses`. On a stream that runs inline the caller waits.
  Status wait_for(const Uses& uses, StreamId stream) {
    if (driver_.stream_is_inline(stream)) return wait(uses, Wait::of_caller());
    for (const Use& use : uses) TM_TRY(driver_.stream_wait_event(stream, use.event.handle()));
    return {};
  }

  // An event behind everything queued on `stream` so far.
  Status mark(StreamId stream, EventRef* event) { return events_.record(stream, event); }

  // True only when the streams are proven to have passed all of them.
  Status are_done(const Uses& uses, bool* done) {
    for (const Use& use : uses) {
      bool passed = false;
      TM_TRY(driver_.event_query(use.event.handle(), &passed));
      if (!passed) {
        *done = false;
        return {};
      }
    }
    *done = true;
    return {};
  }
  Status wait(const Uses& uses, const Wait& wait) {
    for (const Use& use : uses) TM_TRY(driver_.event_wait(use.event.handle(), wait));
    return {};
  }
  // Before an end that cannot stop half way: fails only where the caller does not want to go on. What cannot be waited
  // for is left to the end itself.
  Status wait_before_end(const Uses& uses, const Wait& wait) {
    for (const Use& use : uses) {
      Status waited = driver_.event_wait(use.event.handle(), wait);
      const bool stops = waited.code() == Code::interrupted || (waited.code() == Code::timed_out && !is_ending());
      if (stops) return waited;
    }
    return {};
  }
  // For what cannot stop half way.
  Status synchronize(const Uses& uses) {
    for (const Use& use : uses) TM_TRY(driver_.event_synchronize(use.event.handle()));
    return {};
  }

 private:
  Driver& driver_;
  EventCache events_;
};

}  // namespace tensormem
