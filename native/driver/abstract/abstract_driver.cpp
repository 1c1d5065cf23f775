#include "driver/abstract/abstract_driver.hpp"

#include <cstdio>

namespace tensormem {

namespace {

Status check_device(std::int32_t device) {
  if (device == 0) return {};
  return Status::fail(Code::invalid_argument, "the abstract driver has one device, number 0");
}

// As on the host: the device, or -1 for the processor that would be there.
Status check_place(std::int32_t device) { return device == -1 ? Status() : check_device(device); }

}  // namespace

AbstractDriver& abstract_driver() {
  static auto* const driver = new AbstractDriver(AbstractDriver::kPlenty);
  return *driver;
}

Status AbstractDriver::device_info(std::int32_t device, DeviceInfo* info) {
  TM_TRY(check_device(device));
  DeviceInfo found;
  std::snprintf(found.name, sizeof found.name, "abstract memory");
  found.total_bytes = books_.capacity();
  found.simulated = true;
  found.virtual_memory = true;
  *info = found;
  return {};
}

Status AbstractDriver::memory_info(std::int32_t device, MemoryInfo* info) {
  TM_TRY(check_device(device));
  *info = MemoryInfo{books_.capacity() - books_.used_bytes(), books_.capacity()};
  return {};
}

Status AbstractDriver::granularity(std::int32_t device, Granularity* granularity) {
  TM_TRY(check_device(device));
  *granularity = Granularity{abstract::PageBooks::kGranularity, abstract::PageBooks::kGranularity};
  return {};
}

Status AbstractDriver::physical_create(std::int32_t device, std::uint64_t size, const PhysicalOptions& options,
                                       PhysicalHandle* physical) {
  TM_TRY(check_device(device));
  if (options.exportable) return no_bytes();
  return books_.create(size, physical);
}

Status AbstractDriver::map(std::uint64_t address, std::uint64_t size, PhysicalHandle physical,
                           std::uint64_t physical_offset) {
  const MapPiece piece{physical, physical_offset, size};
  return books_.map(address, &piece, 1, AccessFlags::none);
}

Status AbstractDriver::map_run(std::uint64_t address, const MapPiece* pieces, std::uint64_t count, std::int32_t device,
                               AccessFlags access) {
  TM_TRY(check_place(device));
  return books_.map(address, pieces, count, access);
}

Status AbstractDriver::set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) {
  TM_TRY(check_place(device));
  return books_.set_access(address, size, access);
}

}  // namespace tensormem
