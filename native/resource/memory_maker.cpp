#include "resource/memory_maker.hpp"

namespace tensormem {

namespace {

thread_local MemoryMaker* t_in_force = nullptr;

}  // namespace

MemoryMaker* maker_in_force() noexcept { return t_in_force; }

MakerScope::MakerScope(MemoryMaker* maker) noexcept : before_(t_in_force) { t_in_force = maker; }

MakerScope::~MakerScope() { t_in_force = before_; }

}  // namespace tensormem
