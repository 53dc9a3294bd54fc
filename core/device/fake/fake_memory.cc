#include "device/fake/fake_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::size_t kAlignment = 256;  // as cuMemAlloc aligns
/// The device address of registered memory minus its host address. With a GPU both may be equal;
/// here they differ, so that an error results if one is used for the other.
constexpr DeviceAddress kHostOffset = 1ULL << 60;

DeviceAddress number_of(const void* memory) { return reinterpret_cast<DeviceAddress>(memory); }

/// Whether one range contains all the bytes.
bool holds(const std::map<DeviceAddress, std::size_t>& ranges, DeviceAddress address,
           std::size_t num_bytes) {
  auto found = ranges.upper_bound(address);
  if (found == ranges.begin()) return false;
  --found;
  return address + num_bytes <= found->first + found->second;
}

void* map_without_access(int fd, std::size_t num_bytes) {
  void* address = ::mmap(nullptr, num_bytes, PROT_NONE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    fail(ErrorKind::kInternal, "mmap of ", num_bytes, " bytes failed: ", std::strerror(errno));
  }
  return address;
}

}  // namespace

FakeMemory::FakeMemory(std::size_t num_bytes)
    : fd_(make_memory_fd("slipstream-fake-device", num_bytes)),
      mapping_(fd_.get(), num_bytes),
      forbidden_(map_without_access(fd_.get(), num_bytes)) {}

FakeMemory::~FakeMemory() { ::munmap(forbidden_, mapping_.size()); }

std::byte* FakeMemory::private_bytes(DeviceAddress address) const {
  return mapping_.data() + (address - number_of(forbidden_));
}

DeviceAddress FakeMemory::allocate(std::size_t num_bytes) {
  if (num_bytes == 0) fail(ErrorKind::kUsage, "allocate: 0 bytes of device memory");
  if (num_bytes > mapping_.size() - num_used_) {
    fail(ErrorKind::kUsage, "allocate: ", num_bytes, " bytes of device memory are wanted, ",
         mapping_.size() - num_used_, " are left");
  }
  const DeviceAddress address = number_of(forbidden_) + num_used_;
  const std::size_t whole = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  num_used_ = std::min(num_used_ + whole, mapping_.size());
  allocated_[address] = num_bytes;
  std::memset(private_bytes(address), static_cast<int>(kNewByte), num_bytes);
  return address;
}

void FakeMemory::free(DeviceAddress memory) {
  const auto found = allocated_.find(memory);
  if (found == allocated_.end()) {
    fail(ErrorKind::kUsage, "free: device memory ", memory, " is not allocated");
  }
  std::memset(private_bytes(memory), static_cast<int>(kFreedByte), found->second);
  allocated_.erase(found);
}

DeviceAddress FakeMemory::register_host(std::span<std::byte> memory) {
  const DeviceAddress begin = number_of(memory.data());
  const auto next = registered_.lower_bound(begin + memory.size());
  const bool overlaps =
      next != registered_.begin() && std::prev(next)->first + std::prev(next)->second > begin;
  if (memory.empty() || overlaps) {
    fail(ErrorKind::kUsage, "register_host: ", memory.size(),
         " bytes of host memory are empty or registered already");
  }
  registered_[begin] = memory.size();
  return device_address_of(memory.data());
}

DeviceAddress FakeMemory::device_address_of(const void* memory) {
  return number_of(memory) + kHostOffset;
}

void FakeMemory::unregister_host(std::byte* memory) {
  if (registered_.erase(number_of(memory)) == 0) {
    fail(ErrorKind::kUsage, "unregister_host: this host memory is not registered");
  }
}

std::byte* FakeMemory::device_bytes(DeviceAddress address, std::size_t num_bytes) const {
  return holds(allocated_, address, num_bytes) ? private_bytes(address) : nullptr;
}

std::byte* FakeMemory::host_bytes(DeviceAddress address, std::size_t num_bytes) const {
  const DeviceAddress host = address - kHostOffset;
  if (!holds(registered_, host, num_bytes)) return nullptr;
  return reinterpret_cast<std::byte*>(host);
}

bool FakeMemory::is_registered(const std::byte* memory, std::size_t num_bytes) const {
  return holds(registered_, number_of(memory), num_bytes);
}

}  // namespace slipstream
