// Owns: what a debug guard knows of one block. Only the two files of the guard include it.
#pragma once

#include "order/block_uses.hpp"
#include "resource/debug_guard_resource_adaptor.hpp"

namespace tensormem {

struct DebugGuardResourceAdaptor::GuardedBlock {
  Block given;     // as its owner has it
  Block upstream;  // larger by the guards, and more by the alignment
  GuardedMemory memory;
  EventRef painted;  // null: the paint was dry from the beginning
  BlockUses uses;
  CapturedStack allocated_at;
  CapturedStack freed_at;
  std::uint32_t readers = 0;  // checks under way: until they end it must not go upstream
  bool leaving = false;       // on its way upstream: no new check
  bool told = false;          // its damage in quarantine was told of already
};

}  // namespace tensormem
