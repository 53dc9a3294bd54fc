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
  /// One thread per stream. Without threads, step() executes the commands, in an order that depends
  /// only on the seed.
  bool threads = true;
  std::uint64_t seed = 1;
  Nanoseconds longest_delay{0};  ///< before each command, if there are threads
  /// All streams share one queue, as may happen with CUDA_DEVICE_MAX_CONNECTIONS=1.
  bool one_queue = false;
  bool allow_late_writes = false;  ///< allow writes of words that end waits enqueued before them
  std::size_t queue_depth = 1020;  ///< commands of a stream above which a call blocks
  std::size_t memory_bytes = 64 << 20;
  std::uint64_t failing_call = 0;     ///< number of the call that throws, from 1; 0: none
  std::uint64_t failing_command = 0;  ///< number of the command that ends the device; 0: none
  /// Time after which a blocked call throws and names the waiting streams.
  Nanoseconds patience{10s};
  std::function<void()> before_call{};  ///< actions between calls; may call step()
};

struct FakeDeviceCounts {
  std::uint64_t calls = 0;
  std::uint64_t bytes_to_host = 0;
  std::uint64_t bytes_to_device = 0;
  /// Memory, streams and events that were created while a stream waited for a word.
  std::uint64_t made_while_waiting = 0;
  std::size_t deepest_queue = 0;
};

/// A device for tests. It checks that its callers follow rules that a GPU has but often does not
/// report: it detects access to memory that the host must not touch, freed memory, unregistered
/// host memory, circular waits, writes that come too late, and calls from the engine's threads. Any
/// fault in a stream makes every later call throw, as on a GPU. Thread-safe.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(FakeDeviceOptions options = {});
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;
  /// Drops the enqueued commands.
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

  /// Without threads: executes one command, or half a copy, of a randomly drawn stream. Returns
  /// false if no stream can do anything.
  bool step();
  /// The faults of the streams; every later call throws the first one.
  [[nodiscard]] std::vector<std::string> faults() const;
  [[nodiscard]] FakeDeviceCounts counts() const;
  /// The current command of each stream, for messages.
  [[nodiscard]] std::string describe_queues() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// The beginning of every call. Takes the lock.
  Lock enter(const char* call);
  Lock enter_to_make(const char* call);
  StreamHandle add_stream();
  // All of these are called with the lock held; those that take it as an argument may release it
  // meanwhile.
  FakeStream& stream(const char* call, StreamHandle handle);
  FakeEvent& event(const char* call, EventHandle handle);
  std::atomic<std::uint32_t>* word(const char* call, DeviceAddress address);
  void check_host(const char* call, const std::byte* memory, std::size_t num_bytes);
  void enqueue(Lock& lock, const char* call, StreamHandle handle, FakeCommand command);
  void block_until(Lock& lock, const char* call, const std::function<bool()>& is_over);
  bool step_locked(Lock& lock);
  void execute(Lock& lock, FakeStream& stream);
  void copy(Lock& lock, FakeCommand& command);
  void report(const std::string& fault);
  void look_for_circle();
  void run_stream(FakeStream& stream);
  void delay(Lock& lock, FakeStream& stream);

  FakeDeviceOptions options_;
  mutable std::mutex mutex_;  ///< guards everything below
  std::condition_variable changed_;
  std::mutex copying_;  ///< two copies that touch the same bytes are not our race
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
