#include <vector>

#include "resource/fault_injection_resource_adaptor.hpp"
#include "resource/pressure_resource_adaptor.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

using Levels = std::vector<PressureLevel>;
constexpr PressureMarks kMarks{.warn = 1000, .critical = 2000, .hysteresis = 200};

}  // namespace

TM_TEST("levels rise at their marks and fall with hysteresis") {
  Levels heard;
  PressureResourceAdaptor pressure(make_leaf(), kMarks, [&](PressureLevel level, std::uint64_t) {
    heard.push_back(level);
    return Status();
  });
  const Block base = allocate(pressure, 999);
  TM_CHECK(pressure.level() == PressureLevel::normal && heard.empty());
  const Block one = allocate(pressure, 1);
  TM_CHECK(pressure.level() == PressureLevel::warn);
  TM_CHECK(deallocate(pressure, one).ok());
  TM_CHECK(pressure.level() == PressureLevel::warn);  // 999 is within the hysteresis
  const Block more = allocate(pressure, 1001);
  TM_CHECK(pressure.level() == PressureLevel::critical && pressure.bytes_outstanding() == 2000);
  TM_CHECK(deallocate(pressure, more).ok());
  TM_CHECK(pressure.level() == PressureLevel::warn);
  TM_CHECK(deallocate(pressure, base).ok());
  TM_CHECK(pressure.level() == PressureLevel::normal);
  TM_CHECK((heard == Levels{PressureLevel::warn, PressureLevel::critical, PressureLevel::warn, PressureLevel::normal}));
}

TM_TEST("one large step skips a level, up and down") {
  Levels heard;
  PressureResourceAdaptor pressure(make_leaf(), kMarks, [&](PressureLevel level, std::uint64_t) {
    heard.push_back(level);
    return Status();
  });
  const Block block = allocate(pressure, 5000);
  TM_CHECK(deallocate(pressure, block).ok());
  TM_CHECK((heard == Levels{PressureLevel::critical, PressureLevel::normal}));
}

TM_TEST("at critical the callback reclaims before the next allocation") {
  std::vector<Block> cache;
  PressureResourceAdaptor* self = nullptr;
  Levels heard;
  PressureResourceAdaptor pressure(make_leaf(), kMarks, [&](PressureLevel level, std::uint64_t) {
    heard.push_back(level);
    if (level != PressureLevel::critical || cache.size() < 4) return Status();
    for (const Block& block : cache) TM_CHECK(deallocate(*self, block).ok());
    cache.clear();
    return Status();
  });
  self = &pressure;
  for (int i = 0; i < 4; ++i) cache.push_back(allocate(pressure, 500));
  TM_CHECK(pressure.level() == PressureLevel::critical);
  const Block next = allocate(pressure, 500);
  TM_CHECK(cache.empty() && pressure.bytes_outstanding() == 500 && pressure.level() == PressureLevel::normal);
  TM_CHECK(heard.back() == PressureLevel::normal);  // it hears of what it did itself
  TM_CHECK(deallocate(pressure, next).ok());
}

TM_TEST("a callback that allocates at critical is not asked again from within") {
  int depth = 0;
  int deepest = 0;
  PressureResourceAdaptor* self = nullptr;
  PressureResourceAdaptor pressure(make_leaf(), kMarks, [&](PressureLevel, std::uint64_t) {
    deepest = std::max(deepest, ++depth);
    TM_CHECK(deallocate(*self, allocate(*self, 64)).ok());
    --depth;
    return Status();
  });
  self = &pressure;
  const Block block = allocate(pressure, 4000);
  const Block next = allocate(pressure, 1);
  TM_CHECK(deepest == 1);
  TM_CHECK(deallocate(pressure, block).ok() && deallocate(pressure, next).ok());
  TM_CHECK(pressure.bytes_outstanding() == 0);
}

TM_TEST("two adaptors with one callback may call one another") {
  auto lower = std::make_shared<PressureResourceAdaptor>(make_leaf(), kMarks,
                                                         [](PressureLevel, std::uint64_t) { return Status(); });
  int heard = 0;
  PressureResourceAdaptor upper(lower, kMarks, [&](PressureLevel, std::uint64_t) {
    ++heard;
    return deallocate(*lower, allocate(*lower, 10));
  });
  const Block block = allocate(upper, 3000);
  TM_CHECK(heard == 1 && lower->level() == PressureLevel::critical);
  TM_CHECK(deallocate(upper, block).ok());
  TM_CHECK(lower->bytes_outstanding() == 0 && upper.bytes_outstanding() == 0);
}

TM_TEST("a callback that fails ends an allocation at critical and loses no memory elsewhere") {
  auto leaf = make_leaf();
  PressureResourceAdaptor pressure(leaf, kMarks, [](PressureLevel, std::uint64_t) {
    return Status::fail(Code::invalid_argument, "the callback refuses");
  });
  const Block block = allocate(pressure, 2000);  // the change of level is told, its failure does not lose the block
  TM_CHECK(try_allocate(pressure, 1) == Code::invalid_argument);
  TM_CHECK(pressure.bytes_outstanding() == 2000 && leaf->bytes_outstanding() == 2000);
  TM_CHECK(deallocate(pressure, block).ok());
  TM_CHECK(pressure.bytes_outstanding() == 0 && pressure.level() == PressureLevel::normal);
}

TM_TEST("retired blocks count until they are reaped") {
  PressureResourceAdaptor pressure(make_leaf(), kMarks, [](PressureLevel, std::uint64_t) { return Status(); });
  GatedStream stream;
  const Block block = allocate(pressure, 3000, stream.id());
  TM_CHECK(deallocate(pressure, block, stream.id()).ok());
  TM_CHECK(pressure.level() == PressureLevel::critical && pressure.bytes_outstanding() == 3000);
  stream.pass();
  TM_CHECK(pressure.reap_pending().ok());
  TM_CHECK(pressure.level() == PressureLevel::normal && pressure.bytes_outstanding() == 0);
}

TM_TEST("failures of the upstream and double frees change nothing") {
  auto faulty = std::make_shared<FaultInjectionResourceAdaptor>(make_leaf(), FaultInjectionPlan{.nth = 2});
  PressureResourceAdaptor pressure(faulty, kMarks, [](PressureLevel, std::uint64_t) { return Status(); });
  const Block block = allocate(pressure, 900);
  TM_CHECK(try_allocate(pressure, 900) == Code::out_of_memory);
  TM_CHECK(pressure.bytes_outstanding() == 900 && pressure.level() == PressureLevel::normal);
  TM_CHECK(deallocate(pressure, block).ok());
  TM_CHECK(deallocate(pressure, block).code() == Code::use_after_free);
  TM_CHECK(pressure.bytes_outstanding() == 0);
}

TM_TEST("when eight threads have ended, the level is that of the use") {
  PressureResourceAdaptor pressure(make_leaf(), {.warn = 3000, .critical = 6000, .hysteresis = 0},
                                   [](PressureLevel, std::uint64_t) { return Status(); });
  for (int round = 0; round < 20; ++round) {
    on_threads(8, [&](int number) {
      for (int i = 0; i < 50; ++i)
        TM_CHECK(deallocate(pressure, allocate(pressure, static_cast<std::uint64_t>(1000 + number))).ok());
    });
    TM_CHECK(pressure.bytes_outstanding() == 0 && pressure.level() == PressureLevel::normal);
  }
}
