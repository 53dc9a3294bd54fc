#include "device/pinned_memory.h"

#include "slipstream/error.h"

namespace slipstream {

PinnedMemory::PinnedMemory(Device& device, std::size_t num_bytes)
    : device_(device),
      fd_(make_memory_fd("slipstream-staging", num_bytes)),
      mapping_(fd_.get(), num_bytes),
      address_(device.register_host(bytes())) {}

PinnedMemory::~PinnedMemory() {
  try {
    device_.unregister_host(mapping_.data());
  } catch (const Error&) {
    // The device has failed or belongs to the process that forked this one; the mapping goes
    // anyway.
  }
}

}  // namespace slipstream
