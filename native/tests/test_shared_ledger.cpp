#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <thread>
#include <vector>

#include "driver/host/fault_plan.hpp"
#include "pool/shared_ledger.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

LedgerTablePtr new_table(std::uint64_t limit) {
  LedgerTablePtr table;
  TM_CHECK(LedgerTable::create(limit, &table).ok());
  return table;
}

SharedLedgerPtr attach(int fd, const char* name, const LedgerTerms& terms = {}, GiveBackHook evict = nullptr,
                       GiveBackHook idle = nullptr) {
  LedgerTablePtr table;
  SharedLedgerPtr ledger;
  TM_CHECK(LedgerTable::attach(fd, &table).ok());
  TM_CHECK(SharedLedger::join(table, name, terms, {std::move(idle), std::move(evict)}, &ledger).ok());
  return ledger;
}

Code why_not(int fd) {
  LedgerTablePtr table;
  return LedgerTable::attach(fd, &table).code();
}

bool refuses(Budget& budget, std::uint64_t bytes, std::uint64_t available) {
  const Status status = budget.claim(bytes);
  return status.code() == Code::out_of_physical_memory && status.failure().facts[0] == bytes &&
         status.failure().facts[1] == available;
}

// A child that does `body`, says so through a pipe, and then waits to be killed.
class Child {
 public:
  template <typename Body>
  explicit Child(Body&& body) {
    TM_CHECK(pipe(ends_) == 0);
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      body();
      TM_CHECK(write(ends_[1], "x", 1) == 1);
      while (true) pause();
    }
    close(ends_[1]);
    char said = 0;
    TM_CHECK(read(ends_[0], &said, 1) == 1);
  }
  ~Child() {
    if (pid_ != 0) end();
    close(ends_[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void end() {
    kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
  }

 private:
  int ends_[2];
  pid_t pid_ = 0;
};

}  // namespace

TM_TEST("participants share one limit, see each other, and leave nothing behind") {
  const auto table = new_table(100);
  struct stat file{};
  TM_CHECK(fstat(table->fd(), &file) == 0 && (file.st_mode & 0777) == 0600);
  TM_CHECK(fcntl(table->fd(), F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  {
    const auto a = attach(table->fd(), "a", {.guaranteed = 30, .maximum = 60, .priority = 2});
    const auto b = attach(table->fd(), "b");
    TM_CHECK(refuses(*b, 71, 70) && b->claim(70).ok() && refuses(*b, 1, 0));
    TM_CHECK(a->claim(30).ok() && refuses(*a, 1, 0) && refuses(*a, 61, 0));
    b->give_back(40);
    TM_CHECK(a->claim(30).ok() && a->used() == 60 && a->limit() == 60 && b->limit() == 100);
    const auto both = b->participants();
    TM_CHECK(both.size() == 2 && both[0].name == "a" && both[0].used == 60 && both[0].guaranteed == 30);
    TM_CHECK(both[0].maximum == 60 && both[0].priority == 2 && both[1].used == 30 && both[1].peak == 70);
    TM_CHECK(both[0].pid == static_cast<std::uint32_t>(getpid()));
    TM_CHECK(a->leave().code() == Code::invalid_argument && !a->has_left());
    a->give_back(60);
    b->give_back(30);
    TM_CHECK(a->leave().ok() && a->leave().ok() && a->has_left() && a->claim(1).code() == Code::use_after_release);
    TM_CHECK(b->participants().size() == 1);
  }
  TM_CHECK(table->participants().empty());
}

TM_TEST("terms that cannot be kept are refused and take no place") {
  const auto table = new_table(100);
  const auto a = attach(table->fd(), "a", {.guaranteed = 60});
  SharedLedgerPtr none;
  LedgerTablePtr other;
  TM_CHECK(LedgerTable::attach(table->fd(), &other).ok());
  TM_CHECK(SharedLedger::join(other, "b", {.guaranteed = 41}, {}, &none).code() == Code::out_of_physical_memory);
  TM_CHECK(SharedLedger::join(other, "b", {.guaranteed = 2, .maximum = 1}, {}, &none).code() == Code::invalid_argument);
  TM_CHECK(SharedLedger::join(other, "b", {.priority = 0}, {}, &none).code() == Code::invalid_argument);
  TM_CHECK(a->set_limit(59).code() == Code::out_of_physical_memory && a->shared_limit() == 100);
  TM_CHECK(a->participants().size() == 1);
  TM_CHECK(SharedLedger::join(other, "b", {.guaranteed = 40}, {}, &none).ok());
}

TM_TEST("thousands take part, and the table is no wider than it must be") {
  const auto table = new_table(3000);
  std::vector<SharedLedgerPtr> all;
  for (std::size_t i = 0; i < 2000; ++i) all.push_back(attach(table->fd(), "one of many", {.maximum = i % 2}));
  TM_CHECK(table->width() == 2000 && all.back()->participants().size() == 2000);
  TM_CHECK(all.back()->claim(1).ok() && refuses(*all[1], 2, 1));
  all.back()->give_back(1);
  all.resize(7);
  const auto late = attach(table->fd(), "late", {.maximum = 0});
  TM_CHECK(table->width() == 8 && late->participants().size() == 8);
}

TM_TEST("what nobody uses goes first, of everybody, also of who is within its share") {
  const auto table = new_table(100);
  std::atomic<SharedLedger*> self{nullptr};
  std::atomic<int> evicted{0};
  const auto idle = attach(
      table->fd(), "idle", {.guaranteed = 5},
      [&](std::uint64_t) {
        ++evicted;
        return Status();
      },
      [&](std::uint64_t wanted) {
        self.load()->give_back(wanted);
        return Status();
      });
  self = idle.get();
  const auto busy = attach(table->fd(), "busy", {.patience_nanoseconds = 60 * kSecond});
  TM_CHECK(idle->claim(30).ok() && busy->claim(70).ok());
  TM_CHECK(busy->claim(10).ok() && idle->used() == 20 && evicted == 0);
  TM_CHECK(busy->claim(15).ok() && idle->used() == 5 && evicted == 0);
  TM_CHECK(refuses(*busy, 1, 0) && idle->used() == 5);  // it is guaranteed that
  idle->give_back(5);
  busy->give_back(95);
}

TM_TEST("jobs are tenants: each stays within its own budget inside the one of all") {
  const auto table = new_table(100);
  const LedgerTerms train{.guaranteed = 10, .job = "train", .job_limit = 60};
  const auto a = attach(table->fd(), "a", train);
  const auto b = attach(table->fd(), "b", train);
  const auto other = attach(table->fd(), "other", {.job = "serve", .job_limit = 80});
  TM_CHECK(refuses(*a, 51, 50) && a->claim(50).ok() && refuses(*a, 1, 0));
  TM_CHECK(b->claim(10).ok() && refuses(*b, 1, 0));
  TM_CHECK(refuses(*other, 41, 40) && other->claim(40).ok());
  a->give_back(50);
  TM_CHECK(refuses(*other, 41, 40) && other->claim(40).ok() && refuses(*other, 1, 0));
  TM_CHECK(refuses(*a, 11, 10) && a->claim(10).ok());
  const auto all = other->participants();
  TM_CHECK(all[0].job == "train" && all[0].job_limit == 60 && all[2].job == "serve");
  LedgerTablePtr late;
  SharedLedgerPtr none;
  TM_CHECK(LedgerTable::attach(table->fd(), &late).ok());
  TM_CHECK(SharedLedger::join(late, "c", {.job = "train", .job_limit = 61}, {}, &none).code() ==
           Code::invalid_argument);
  TM_CHECK(SharedLedger::join(late, "c", {.job_limit = 61}, {}, &none).code() == Code::invalid_argument);
  TM_CHECK(SharedLedger::join(late, "c", {.guaranteed = 41, .job = "train", .job_limit = 60}, {}, &none).code() ==
           Code::out_of_physical_memory);
  a->give_back(10);
  b->give_back(10);
  other->give_back(80);
}

TM_TEST("only members of a job are asked when its own budget is short") {
  const auto table = new_table(100);
  std::atomic<SharedLedger*> self{nullptr};
  std::atomic<int> strangers{0};
  const auto peer = attach(table->fd(), "peer", {.job = "train", .job_limit = 50}, [&](std::uint64_t wanted) {
    self.load()->give_back(wanted);
    return Status();
  });
  self = peer.get();
  const auto count = [&](std::uint64_t) {
    ++strangers;
    return Status();
  };
  const auto stranger = attach(table->fd(), "stranger", {}, count, count);
  TM_CHECK(peer->claim(40).ok() && stranger->claim(50).ok());
  const auto asking =
      attach(table->fd(), "asking", {.patience_nanoseconds = 60 * kSecond, .job = "train", .job_limit = 50});
  TM_CHECK(asking->claim(20).ok() && peer->used() == 30 && strangers == 0);
  peer->give_back(30);
  stranger->give_back(50);
  asking->give_back(20);
}

TM_TEST("files that are no shared budget are refused") {
  TM_CHECK(why_not(-1) == Code::invalid_argument);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  TM_CHECK(why_not(null) == Code::invalid_argument);
  close(null);
  const auto table = new_table(100);
  struct stat real{};
  TM_CHECK(fstat(table->fd(), &real) == 0);
  const auto forged = [&](off_t size, int seals, std::uint64_t word) {
    const int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char head[16] = {};
    TM_CHECK(pread(table->fd(), head, sizeof head, 0) == sizeof head);
    if (word != 0) TM_CHECK(pwrite(fd, head, static_cast<std::size_t>(word), 0) == static_cast<ssize_t>(word));
    TM_CHECK(ftruncate(fd, size) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    const Code code = why_not(fd);
    close(fd);
    return code;
  };
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  TM_CHECK(forged(real.st_size, kSealed, 0) == Code::invalid_argument);
  TM_CHECK(forged(real.st_size, kSealed, 8) == Code::invalid_argument);  // no version
  TM_CHECK(forged(real.st_size, F_SEAL_SHRINK, 16) == Code::invalid_argument);
  TM_CHECK(forged(real.st_size, F_SEAL_GROW, 16) == Code::invalid_argument);
  TM_CHECK(forged(real.st_size - 1, kSealed, 16) == Code::invalid_argument);
  TM_CHECK(forged(real.st_size + 4096, kSealed, 16) == Code::invalid_argument);
  TM_CHECK(forged(real.st_size, kSealed, 16) == Code::ok);  // nothing else was wrong with them
}

TM_TEST("what a participant scribbles over the table takes others' memory at most, never their footing") {
  const auto table = new_table(100);
  const auto a = attach(table->fd(), "a", {.guaranteed = 10, .patience_nanoseconds = 1000});
  TM_CHECK(a->claim(20).ok());
  std::uint64_t seed = 1;
  for (int round = 0; round < 200; ++round) {
    table->header().width.store(round % 3 == 0 ? ~0U : 64);
    for (std::size_t i = 1; i < 64; ++i) {
      auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(&table->slot(i));
      seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
      words[seed >> 59].store(round % 2 == 0 ? ~0ULL : seed);
    }
    const bool got = a->claim(5).ok();
    if (got) a->give_back(5);
    TM_CHECK(a->used() == 20);
  }
  a->give_back(20);
  TM_CHECK(a->participants().size() == 1);  // the made-up ones hold no lock
  TM_CHECK(a->claim(100).ok());
  a->give_back(100);
}

TM_TEST("a process that is killed returns its share, once") {
  const auto table = new_table(100);
  const auto a = attach(table->fd(), "a");
  const auto b = attach(table->fd(), "b");
  Child child([&] {
    const auto mine = new SharedLedgerPtr(attach(table->fd(), "child", {.guaranteed = 50}));
    TM_CHECK((*mine)->claim(80).ok());
  });
  TM_CHECK(refuses(*a, 21, 20) && a->participants().size() == 3);
  TM_CHECK(a->participants()[2].pid == static_cast<std::uint32_t>(child.pid()));
  child.end();
  TM_CHECK(a->claim(60).ok() && b->claim(40).ok() && refuses(*b, 1, 0));
  TM_CHECK(a->participants().size() == 2 && table->guaranteed_without(LedgerTable::kSlots) == 0);
  a->give_back(60);
  b->give_back(40);
}

TM_TEST("a forked child is no participant, keeps nobody's share alive, and can join") {
  const auto table = new_table(100);
  auto* const parent_side = new SharedLedgerPtr(attach(table->fd(), "parent"));
  TM_CHECK((*parent_side)->claim(40).ok());
  Child child([&] {
    TM_CHECK((*parent_side)->claim(1).code() == Code::use_after_release);
    (*parent_side)->give_back(10);  // of its copy
    delete parent_side;
    const auto mine = new SharedLedgerPtr(attach(table->fd(), "child"));
    TM_CHECK((*mine)->claim(60).ok() && refuses(**mine, 1, 0));
  });
  TM_CHECK((*parent_side)->used() == 40 && (*parent_side)->participants().size() == 2);
  TM_CHECK(refuses(**parent_side, 1, 0));
  (*parent_side)->give_back(40);
  delete parent_side;
}

TM_TEST("children killed at any moment of joining, claiming and leaving leave sums that add up") {
  const auto table = new_table(1000);
  const auto watcher = attach(table->fd(), "watcher");
  for (int round = 0; round < 40; ++round) {
    std::vector<pid_t> churning;
    for (std::uint64_t number = 0; number < 3; ++number) {
      std::fflush(nullptr);
      const pid_t pid = fork();
      if (pid != 0) {
        churning.push_back(pid);
        continue;
      }
      while (true) {
        const auto mine = attach(table->fd(), "churning", {.guaranteed = number * 10, .patience_nanoseconds = 1000});
        for (std::uint64_t i = 1; i < 20; ++i)
          if (mine->claim(i * 40 % 700).ok()) mine->give_back(i * 40 % 700);
      }
    }
    bool kept = true;
    for (int i = 0; i < 100 + round * 20; ++i) {
      if (watcher->claim(300).ok()) watcher->give_back(300);
      std::uint64_t sum = 0;
      for (const Participant& each : table->participants()) sum += each.used;
      kept = kept && sum <= 1000;
    }
    TM_CHECK(kept);
    for (const pid_t pid : churning) kill(pid, SIGKILL);
    for (const pid_t pid : churning) waitpid(pid, nullptr, 0);
    TM_CHECK(watcher->claim(1000).ok() && watcher->participants().size() == 1);
    watcher->give_back(1000);
  }
}

TM_TEST("threads and processes that race for the last room never pass the limit") {
  const auto table = new_table(100);
  std::atomic<bool> broken{false};
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> held{0};
  std::atomic<std::uint64_t> served{0};
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&] {
      const auto mine = attach(table->fd(), "racing", {.patience_nanoseconds = 1000});
      for (int i = 0; i < 500; ++i) {
        if (!mine->claim(40).ok()) continue;
        if (held.fetch_add(40) + 40 > 100) broken = true;
        ++served;
        held.fetch_sub(40);
        mine->give_back(40);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  TM_CHECK(!broken && served > 0 && table->participants().empty());
}

TM_TEST("a claim that finds no room asks the others, and is served by what they give back") {
  const auto table = new_table(100);
  std::atomic<SharedLedger*> self{nullptr};
  std::atomic<std::uint64_t> asked{0};
  const auto low = attach(table->fd(), "low", {}, [&](std::uint64_t wanted) {
    asked = wanted;
    TM_CHECK(self.load()->claim(1000).code() == Code::out_of_physical_memory);  // asks nobody
    self.load()->give_back(wanted);
    return Status();
  });
  self = low.get();
  const auto deaf = attach(table->fd(), "deaf");
  TM_CHECK(low->claim(70).ok() && deaf->claim(30).ok());
  const auto high = attach(table->fd(), "high", {.priority = 3, .patience_nanoseconds = 60 * kSecond});
  TM_CHECK(high->claim(25).ok() && asked == 25 && low->used() == 45);
  TM_CHECK(high->participants()[0].times_asked == 1 && high->participants()[0].asked_bytes == 0);
  low->give_back(45);
  deaf->give_back(30);
  high->give_back(25);
}

TM_TEST("who is asked and gives nothing back, fails, or is stopped, does not hold up a claim for ever") {
  const auto table = new_table(100);
  const auto empty_handed = attach(table->fd(), "keeps", {}, [](std::uint64_t) { return Status(); });
  const auto failing =
      attach(table->fd(), "fails", {}, [](std::uint64_t) { return Status::fail(Code::callback_failed, "no"); });
  TM_CHECK(empty_handed->claim(50).ok() && failing->claim(50).ok());
  // Both answer, so the patience of an hour is not used up.
  const auto patient = attach(table->fd(), "patient", {.patience_nanoseconds = 3600 * kSecond});
  TM_CHECK(refuses(*patient, 10, 0));
  empty_handed->give_back(50);
  const pid_t stopped = [&] {
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    LedgerTablePtr mine;
    SharedLedgerPtr ledger;
    if (!LedgerTable::attach(table->fd(), &mine).ok()) _exit(1);
    if (!SharedLedger::join(mine, "stopped", {}, {}, &ledger).ok() || !ledger->claim(50).ok()) _exit(2);
    mine->slot(3).listens.store(kGivesIdle | kEvicts);  // claims to listen, and does not
    raise(SIGSTOP);
    _exit(0);
  }();
  int status = 0;
  TM_CHECK(waitpid(stopped, &status, WUNTRACED) == stopped && WIFSTOPPED(status));
  const auto hasty = attach(table->fd(), "hasty", {.patience_nanoseconds = kSecond / 20});
  TM_CHECK(refuses(*hasty, 10, 0));
  // Killed while somebody waits for it: its share is the answer.
  std::thread killer([&] { kill(stopped, SIGKILL); });
  TM_CHECK(patient->claim(10).ok());
  killer.join();
  waitpid(stopped, &status, 0);
  patient->give_back(10);
  failing->give_back(50);
}

TM_TEST("a lowered limit asks everybody for what is too much") {
  const auto table = new_table(100);
  std::atomic<SharedLedger*> self{nullptr};
  const auto big = attach(table->fd(), "big", {}, [&](std::uint64_t wanted) {
    self.load()->give_back(wanted);
    return Status();
  });
  self = big.get();
  TM_CHECK(big->claim(90).ok());
  const auto other = attach(table->fd(), "other", {.patience_nanoseconds = 60 * kSecond});
  TM_CHECK(other->set_limit(40).ok() && big->used() == 40 && big->shared_limit() == 40);
  TM_CHECK(big->set_limit(10).ok() && big->used() == 10);  // its own hook, on this thread
  big->give_back(10);
}

TM_TEST("a hook may leave the budget it was asked by") {
  const auto table = new_table(100);
  std::atomic<SharedLedger*> self{nullptr};
  std::atomic<bool> has_left{false};
  const auto leaving = attach(table->fd(), "leaving", {}, [&](std::uint64_t) {
    self.load()->give_back(100);
    Status left = self.load()->leave();
    has_left = true;
    has_left.notify_all();
    return left;
  });
  self = leaving.get();
  TM_CHECK(leaving->claim(100).ok());
  const auto asking = attach(table->fd(), "asking", {.patience_nanoseconds = 60 * kSecond});
  TM_CHECK(asking->claim(50).ok());
  asking->give_back(50);
  has_left.wait(false);
  TM_CHECK(asking->participants().size() == 1 && leaving->has_left());
}

TM_TEST("when a system call fails while a table is made or joined, nothing is left behind") {
  namespace plan = host::fault_plan;
  const auto scenario = [] {
    LedgerTablePtr table;
    LedgerTablePtr again;
    SharedLedgerPtr ledger;
    Status made = LedgerTable::create(100, &table);
    if (made.ok()) made = LedgerTable::attach(table->fd(), &again);
    if (made.ok())
      made = SharedLedger::join(again, "a", {}, {nullptr, [](std::uint64_t) { return Status(); }}, &ledger);
    if (made.ok()) {
      made = ledger->claim(10);
      ledger->give_back(made.ok() ? 10 : 0);
    }
    ledger.reset();
    TM_CHECK(table == nullptr || table->participants().empty());
    return made.ok();
  };
  TM_CHECK(scenario());
  plan::arm(host::SystemCall::any, 0, 0);
  TM_CHECK(scenario());
  const std::uint64_t calls = plan::calls_made();
  plan::disarm();
  const int lowest_free = dup(0);
  close(lowest_free);
  for (std::uint64_t nth = 1; nth <= calls; ++nth) {
    plan::arm(host::SystemCall::any, nth, EMFILE);
    (void)scenario();
    plan::disarm();
    TM_CHECK(scenario());
    const int still_free = dup(0);
    TM_CHECK(still_free == lowest_free);
    close(still_free);
  }
  TM_CHECK(calls > 10);
}
