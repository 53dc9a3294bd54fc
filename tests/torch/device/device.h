#pragma once

#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>

#include "device/fake/fake_device.h"

// A device of PyTorch for tests ("PrivateUse1"), whose streams, events and memory are those of a
// fake device. Operators run later than their call, in the order of their stream, as on a GPU.
namespace slipstream::teststream {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline const c10::Device kDevice{kType, 0};  // there is one

/// The device. The first call makes it, so a process may fork before.
FakeDevice& device();

/// Options of the device; a change has an effect before the first call of device() only.
FakeDeviceOptions& options();

inline c10::Stream stream_of(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, kDevice, id);
}

/// The current stream of this thread.
c10::Stream current_stream();
c10::Stream exchange_stream(c10::Stream stream);
/// A stream of a pool; streams are given out again after many calls, as PyTorch does for CUDA.
c10::Stream next_stream();

inline StreamHandle handle_of(c10::Stream stream) {
  return StreamHandle{static_cast<std::uintptr_t>(stream.id())};
}

/// The address by which kernels reach device memory; the host faults at `memory` itself.
std::byte* kernel_bytes(const void* memory, std::size_t num_bytes);

}  // namespace slipstream::teststream
