#include "device/pinned_memory.h"

#include "slipstream/error.h"

namespace slipstream {
namespace {

std::size_t whole_pages(std::size_t num_bytes) {
  constexpr std::size_t kPageBytes = 4096;
  return (num_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

PinnedMemory::PinnedMemory(Device& device, std::size_t num_bytes)
    : device_(device),
      fd_(make_memory_fd("slipstream-staging", whole_pages(num_bytes))),
      mapping_(fd_.get(), whole_pages(num_bytes)),
      address_(device.register_host(bytes())) {}

PinnedMemory::~PinnedMemory() {
  try {
    device_.unregister_host(mapping_.data());
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a failed device pins nothing
  }
}

}  // namespace slipstream
