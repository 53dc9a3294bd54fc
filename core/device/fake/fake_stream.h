#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"

namespace slipstream {

/// A command of a stream.
struct FakeCommand {
  enum class Kind : std::uint8_t {
    kCopyToHost,
    kCopyToDevice,
    kWriteWord,
    kWaitWord,
    kRecord,
    kWaitEvent,
    kKernel,
  };
  Kind kind{};
  std::uint64_t order = 0;     ///< among the commands of all streams
  std::byte* host = nullptr;   ///< of a copy
  DeviceAddress device = 0;    ///< of a copy; of a word
  std::size_t num_bytes = 0;   ///< of a copy
  std::size_t num_copied = 0;  ///< a copy is done in two steps
  std::atomic<std::uint32_t>* word = nullptr;
  std::uint32_t value = 0;
  std::size_t event = 0;
  std::uint64_t version = 0;  ///< of the event
  std::function<void()> kernel{};
};

struct FakeStream {
  std::deque<FakeCommand> queue;  ///< the first one may be under way
  std::mt19937_64 random;
  std::thread thread;
  bool destroyed = false;
};

/// An event counts its records. A wait is for one of them, even if the event is recorded again in
/// another stream, which may be ahead.
struct FakeDeviceEvent {
  std::uint64_t num_recorded = 0;
  std::set<std::uint64_t> pending{};  ///< numbers of the records that no stream has executed yet
  bool destroyed = false;
};

/// The streams and events of a fake device.
struct FakeQueues {
  std::deque<FakeStream> streams;
  std::deque<FakeDeviceEvent> events;
  bool one_queue = false;  ///< commands of all streams are executed in the order of their calls
};

/// Whether the first command of the stream can be executed now.
[[nodiscard]] bool can_run(const FakeQueues& queues, const FakeStream& stream);
/// Whether a stream waits for a word.
[[nodiscard]] bool waits_for_word(const FakeQueues& queues);
/// Whether `write`, which is about to be enqueued, would end a wait that was enqueued before and
/// that no other write ends.
[[nodiscard]] bool ends_earlier_wait(const FakeQueues& queues, const FakeCommand& write);
/// Describes the streams that can never continue, whatever the CPU writes, because they wait for
/// one another: one line for each. Nothing if there are none.
[[nodiscard]] std::optional<std::string> find_circle(const FakeQueues& queues);
/// Describes the next command of each stream that has one: one line for each.
[[nodiscard]] std::string describe(const FakeQueues& queues);

}  // namespace slipstream
