#include "device.h"

#include <mutex>
#include <vector>

#include "slipstream/error.h"
#include "test/cuda_stand_in/gpu.h"

namespace slipstream::teststream {
namespace {

constexpr std::size_t kPoolStreams = 16;

thread_local c10::StreamId current = 0;  // the default stream

}  // namespace

FakeDeviceOptions& options() {
  static FakeDeviceOptions chosen{.queue_depth = 8192, .memory_bytes = 4UL << 30, .patience = 60s};
  return chosen;
}

FakeDevice& device() {
  // Never destroyed: tensors may outlive all objects of this library.
  static FakeDevice& made = *new FakeDevice(options());
  return made;
}

c10::Stream current_stream() { return stream_of(current); }

c10::Stream exchange_stream(c10::Stream stream) {
  const c10::Stream before = current_stream();
  current = stream.id();
  return before;
}

c10::Stream next_stream() {
  static std::mutex mutex;
  static std::vector<StreamHandle> pool;
  static std::size_t calls = 0;
  const std::scoped_lock lock(mutex);
  if (pool.size() < kPoolStreams) pool.push_back(device().make_stream());
  const StreamHandle handle = pool[calls++ % kPoolStreams];
  return stream_of(static_cast<c10::StreamId>(handle));
}

std::byte* kernel_bytes(const void* memory, std::size_t num_bytes) {
  if (num_bytes == 0) return nullptr;
  std::byte* bytes = device().kernel_bytes(reinterpret_cast<DeviceAddress>(memory), num_bytes);
  if (bytes == nullptr) {
    fail(ErrorKind::kUsage, num_bytes, " bytes at ", memory, " are not memory of the test device");
  }
  return bytes;
}

}  // namespace slipstream::teststream

namespace slipstream {

FakeDevice& stand_in_gpu() { return teststream::device(); }

}  // namespace slipstream
