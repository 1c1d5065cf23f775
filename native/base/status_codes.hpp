// Owns: the one list of failures. Each row: the code, its Python class in errors.py, and the names of its facts in the
// order native code gives them. tests/unit/test_status_codes.py holds errors.py to it.
#pragma once

#define TM_STATUS_CODES(X)                                                \
  X(invalid_argument, "InvalidArgument", "")                              \
  X(invalid_size, "InvalidSize", "nbytes")                                \
  X(invalid_alignment, "InvalidAlignment", "alignment")                   \
  X(invalid_offset, "InvalidOffset", "offset,size,capacity")              \
  X(invalid_page_size, "InvalidPageSize", "page_size,minimum")            \
  X(invalid_dlpack, "InvalidDLPack", "value")                             \
  X(malformed_message, "MalformedMessage", "position")                    \
  X(out_of_memory, "OutOfMemory", "requested,total_free,largest_free")    \
  X(out_of_budget, "OutOfBudget", "requested,current,remaining,limit")    \
  X(use_after_free, "UseAfterFree", "generation,address")                 \
  X(foreign_block, "ForeignBlock", "generation,address")                  \
  X(out_of_bounds, "OutOfBounds", "generation,address,offset")            \
  X(stream_misuse, "StreamMisuse", "stream")                              \
  X(already_mapped, "AlreadyMapped", "offset,size")                       \
  X(not_mapped, "NotMapped", "offset,size")                               \
  X(still_mapped, "StillMapped", "address,mappings")                      \
  X(still_held, "StillHeld", "address,holds")                             \
  X(use_after_release, "UseAfterRelease", "address")                      \
  X(out_of_virtual_memory, "OutOfVirtualMemory", "requested")             \
  X(out_of_physical_memory, "OutOfPhysicalMemory", "requested,available") \
  X(too_many_mappings, "TooManyMappings", "current,limit")                \
  X(callback_failed, "CallbackFailed", "")                                \
  X(interrupted, "CallbackFailed", "")                                    \
  X(timed_out, "TimedOut", "seconds")                                     \
  X(not_supported, "NotSupported", "")                                    \
  X(driver_error, "DriverError", "code")                                  \
  X(internal_error, "InternalError", "")
