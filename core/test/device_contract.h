#pragma once

// What every device promises (device/device.h), as cases that throw Error when it is not kept. They
// need no test framework, so that a machine with a GPU and a compiler can run them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "device/owned.h"
#include "device/pinned_memory.h"
#include "gate/gate.h"
#include "slipstream/error.h"

namespace slipstream::test {

struct DeviceCase {
  const char* name;
  void (*run)(Device& device);
};

/// All cases, in the order in which they depend on one another.
std::span<const DeviceCase> device_contract();

/// Throws Error with the text and the values unless `holds`.
template <typename... Parts>
void expect(bool holds, const Parts&... parts) {
  if (!holds) fail(ErrorKind::kInternal, "expected ", parts...);
}

/// Whether it becomes true within the time, which is ample.
bool comes_true(const std::function<bool()>& condition, Nanoseconds limit = 5s);

/// What four-byte word `index` of a pattern is.
constexpr std::uint32_t pattern_word(std::uint32_t seed, std::size_t index) {
  return (seed ^ static_cast<std::uint32_t>(index)) * 2654435761U + seed;
}
void fill_pattern(std::span<std::byte> memory, std::uint32_t seed, std::size_t first_word = 0);
/// The number of four-byte words that differ from the pattern; a last part of a word counts, too.
std::size_t wrong_words(std::span<const std::byte> memory, std::uint32_t seed,
                        std::size_t first_word = 0);

/// Device memory that goes with its owner.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, std::size_t num_bytes)
      : device_(device), address_(device.allocate(num_bytes)) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();
  [[nodiscard]] DeviceAddress address() const { return address_; }

 private:
  Device& device_;
  DeviceAddress address_;
};

/// Some shared words and memory, pinned, and two streams. As it goes it ends all waits for its
/// words and then waits for the streams, so a case that fails leaves nothing behind that hangs.
class DeviceBench {
 public:
  static constexpr std::size_t kNumWords = 8;

  explicit DeviceBench(Device& device, std::size_t num_bytes = 1 << 20);
  DeviceBench(const DeviceBench&) = delete;
  DeviceBench& operator=(const DeviceBench&) = delete;
  ~DeviceBench();

  [[nodiscard]] SharedWord& word(std::size_t index);
  [[nodiscard]] DeviceAddress word_address(std::size_t index);
  [[nodiscard]] std::span<std::byte> host() {
    return pinned_.bytes().subspan(kNumWords * sizeof(SharedWord));
  }
  [[nodiscard]] StreamHandle first() const { return first_.get(); }
  [[nodiscard]] StreamHandle second() const { return second_.get(); }
  /// Enqueues a wait for a word, which the destructor ends if nobody else does.
  void hold(StreamHandle stream, std::size_t index, std::uint32_t value);
  /// Ends the wait for a word: stores the value.
  void release(std::size_t index, std::uint32_t value);
  /// Whether the stream gets as far as this within the time.
  bool gets_here(StreamHandle stream, Nanoseconds limit = 5s);

 private:
  struct Hold {
    std::size_t word;
    std::uint32_t value;
  };

  Device& device_;
  PinnedMemory pinned_;
  OwnedStream first_;
  OwnedStream second_;
  OwnedEvent here_;
  std::vector<Hold> holds_;
};

}  // namespace slipstream::test
