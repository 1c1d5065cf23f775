#include "pool/ledger_listener.hpp"

#include "base/wait.hpp"
#include "driver/host/os.hpp"

namespace tensormem {

namespace {

namespace os = host::os;
constexpr std::uint64_t kNap = 3'600'000'000'000;  // woken by asks; the hour is for the kernel's argument only

}  // namespace

Status LedgerListener::start(LedgerTablePtr table, std::size_t slot, GiveBackHook idle, GiveBackHook evict,
                             std::shared_ptr<LedgerListener>* listener) {
  std::shared_ptr<LedgerListener> made(new LedgerListener(std::move(table), slot, std::move(idle), std::move(evict)));
  // The thread has a share of its own: it may outlive whoever stops it from within the hook.
  auto* share = new std::shared_ptr<LedgerListener>(made);
  const auto body = [](void* argument) -> void* {
    const std::unique_ptr<std::shared_ptr<LedgerListener>> self(
        static_cast<std::shared_ptr<LedgerListener>*>(argument));
    os::name_this_thread("tensormem-asks");
    (*self)->listen();
    (*self)->ended_.store(true);
    return nullptr;
  };
  if (const int error = os::start_thread(&made->thread_, body, share); error != 0) {
    delete share;
    return Status::driver_error(error, "pthread_create");
  }
  *listener = std::move(made);
  return {};
}

void LedgerListener::listen() {
  LedgerSlot& slot = table_->slot(slot_);
  std::uint32_t heard = 0;  // as a slot begins, so that no ask from before the thread ran is missed
  while (true) {
    while (slot.ask_serial.load() == heard && !stopping_.load()) os::wait_while(slot.ask_serial, heard, kNap);
    if (stopping_.load()) return;
    heard = slot.ask_serial.load();
    answer(heard);
  }
}

void LedgerListener::answer(std::uint32_t serial) {
  LedgerSlot& slot = table_->slot(slot_);
  if (!call(idle_, slot.asked_idle.exchange(0))) return;
  const std::uint64_t wanted = slot.asked_bytes.exchange(0);
  if (wanted != 0 && evict_ != nullptr) slot.times_asked.fetch_add(1);
  if (!call(evict_, wanted)) return;
  if (evict_ != nullptr && !call(idle_, wanted)) return;  // what it freed is in caches until now
  slot.answered.store(serial);
  table_->tell_change();
}

// Whether the slot is still ours.
bool LedgerListener::call(const GiveBackHook& hook, std::uint64_t wanted) {
  if (wanted == 0 || hook == nullptr) return !stopping_.load();
  const AskingScope asking(table_.get());
  (void)hook(wanted).ok();  // who asked sees what came back; the hook has reported its own failure
  return !stopping_.load();
}

void LedgerListener::stop() {
  stopping_.store(true);
  if (table_->is_forked()) return;  // the thread stayed with the parent
  LedgerSlot& slot = table_->slot(slot_);
  slot.ask_serial.fetch_add(1);
  os::wake_waiters(slot.ask_serial);
  const auto has_ended = [this](bool* ended) {
    *ended = ended_.load();
    return Status();
  };
  if (pthread_equal(pthread_self(), thread_) != 0 || !Wait::until_done().by_asking(has_ended).ok()) {
    pthread_detach(thread_);
    return;
  }
  os::join_thread(thread_);
}

}  // namespace tensormem
