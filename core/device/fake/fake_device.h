#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "device/fake/fake_memory.h"
#include "device/fake/fake_stream.h"

namespace slipstream {

struct FakeDeviceOptions {
  /// Whether each stream has a thread. Otherwise step() executes commands, in an order that depends
  /// on the seed only.
  bool threads = true;
  std::uint64_t seed = 1;
  Nanoseconds longest_delay{0};  ///< before each command of a thread
  /// Rates of the copies by threads, which take turns in each direction as those of a GPU's copy
  /// engine do. 0 is as fast as the CPU copies.
  double to_host_bytes_per_second = 0, to_device_bytes_per_second = 0;
  /// Whether all streams share one queue, as with CUDA_DEVICE_MAX_CONNECTIONS=1.
  bool one_queue = false;
  bool allow_late_writes = false;  ///< allow a write that ends an earlier wait
  std::size_t queue_depth = 1020;  ///< commands of a stream; further calls block
  std::size_t memory_bytes = 64 << 20;
  std::uint64_t failing_call = 0;       ///< number of the call that throws, from 1; 0 is none
  std::uint64_t failing_command = 0;    ///< number of the command that is a fault; 0 is none
  Nanoseconds patience{10s};            ///< a call that blocks longer throws
  std::function<void()> before_call{};  ///< called at the start of every call; may call step()
};

struct FakeDeviceCounts {
  std::uint64_t calls = 0;
  std::uint64_t bytes_to_host = 0;
  std::uint64_t bytes_to_device = 0;
  std::uint64_t made_while_waiting = 0;  ///< memory, streams and events made during a wait
  std::size_t deepest_queue = 0;
};

/// A device for tests. It reports misuse that a GPU may leave undetected: access by the host to
/// device memory, use of freed memory or of host memory that is not registered, circles of waits,
/// writes of a word that are enqueued after a wait for it, and calls by threads of the engine.
/// After a fault in a stream every later call throws, as with a GPU. Thread-safe.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(FakeDeviceOptions options = {});
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;
  /// Drops the commands that were not executed.
  ~FakeDevice() override;

  [[nodiscard]] std::string describe() const override { return "a fake device"; }
  DeviceAddress allocate(std::size_t num_bytes) override;
  void free(DeviceAddress memory) override;
  DeviceAddress register_host(std::span<std::byte> memory) override;
  void unregister_host(std::byte* memory) override;
  StreamHandle make_stream() override;
  void destroy(StreamHandle stream) override;
  EventHandle make_event() override;
  void destroy(EventHandle event) override;
  void copy_to_host(StreamHandle stream, std::byte* target, DeviceAddress source,
                    std::size_t num_bytes) override;
  void copy_to_device(StreamHandle stream, DeviceAddress target, const std::byte* source,
                      std::size_t num_bytes) override;
  void write_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) override;
  void wait_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) override;
  void record(StreamHandle stream, EventHandle event) override;
  void wait_event(StreamHandle stream, EventHandle event) override;
  [[nodiscard]] bool is_done(EventHandle event) override;
  void synchronize(StreamHandle stream) override;

  /// Runs a function in a stream, as a GPU runs a kernel. An exception is a fault of the stream.
  void launch(StreamHandle stream, std::function<void()> kernel);
  /// Blocks until all streams have executed all their commands.
  void synchronize_all();
  /// Memory of the device, for kernels; nullptr if a part of it is not allocated.
  [[nodiscard]] std::byte* kernel_bytes(DeviceAddress address, std::size_t num_bytes) const;

  /// Executes one command, or half of a copy, of a random stream, if there are no threads. Returns
  /// false if no stream can continue.
  bool step();
  /// The faults of streams. Every later call throws the first one.
  [[nodiscard]] std::vector<std::string> faults() const;
  [[nodiscard]] FakeDeviceCounts counts() const;
  /// The next command of each stream, for messages.
  [[nodiscard]] std::string describe_queues() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Starts a call: checks the thread, counts, and takes the lock.
  Lock enter(const char* call);
  Lock enter_to_make(const char* call);
  StreamHandle add_stream();
  // These are called with the lock held. Those with a parameter for it may release it meanwhile.
  FakeStream& stream(const char* call, StreamHandle handle);
  FakeDeviceEvent& event(const char* call, EventHandle handle);
  std::atomic<std::uint32_t>* word(const char* call, DeviceAddress address);
  void check_host(const char* call, const std::byte* memory, std::size_t num_bytes);
  void enqueue(Lock& lock, const char* call, StreamHandle handle, FakeCommand command);
  void block_until(Lock& lock, const char* call, const std::function<bool()>& is_over);
  bool step_locked(Lock& lock);
  void execute(Lock& lock, FakeStream& stream);
  void copy(Lock& lock, FakeCommand& command);
  /// Sleeps until the copy engine of a direction has moved the bytes that it began to move at
  /// `begin`.
  void occupy_copy_engine(Lock& lock, FakeCommand::Kind direction, std::size_t num_bytes,
                          TimePoint begin);
  void run_kernel(Lock& lock, FakeCommand& command);
  void report(const std::string& fault);
  void look_for_circle();
  void run_stream(FakeStream& stream);
  void delay(Lock& lock, FakeStream& stream);

  FakeDeviceOptions options_;
  mutable std::mutex mutex_;  ///< guards everything below
  std::condition_variable changed_;
  TimePoint to_host_free_{}, to_device_free_{};  ///< when the copy engines are idle
  std::mutex copying_;  ///< held by copies, which may overlap after a ring was opened
  FakeMemory memory_;
  FakeQueues queues_;
  std::mt19937_64 random_;
  FakeDeviceCounts counts_;
  std::uint64_t num_commands_ = 0;
  std::uint64_t num_executed_ = 0;
  std::vector<std::string> faults_;
  bool closing_ = false;
};

}  // namespace slipstream
