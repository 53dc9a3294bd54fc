#pragma once

// The contract of all devices (device/device.h), as cases that throw Error if a device breaks it.
// They need no test framework, so they can run on a machine that has only a GPU and a compiler.

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

/// All cases. Later ones rely on the results of earlier ones.
std::span<const DeviceCase> device_contract();

/// Throws Error with the text and the values unless `holds`.
template <typename... Parts>
void expect(bool holds, const Parts&... parts) {
  if (!holds) fail(ErrorKind::kInternal, "expected ", parts...);
}

/// Whether the condition becomes true within the limit.
bool comes_true(const std::function<bool()>& condition, Nanoseconds limit = 5s);

/// Four-byte word `index` of the pattern of `seed`.
constexpr std::uint32_t pattern_word(std::uint32_t seed, std::size_t index) {
  return (seed ^ static_cast<std::uint32_t>(index)) * 2654435761U + seed;
}
void fill_pattern(std::span<std::byte> memory, std::uint32_t seed, std::size_t first_word = 0);
/// The number of four-byte words that differ from the pattern. An incomplete last word counts too.
std::size_t wrong_words(std::span<const std::byte> memory, std::uint32_t seed,
                        std::size_t first_word = 0);

/// Owns device memory and frees it.
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

/// Pinned words and memory, and two streams. The destructor ends all waits for the words and
/// synchronizes the streams, so a case that fails leaves no stream that hangs.
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
  /// Enqueues a wait for a word. The destructor ends it unless release() has.
  void hold(StreamHandle stream, std::size_t index, std::uint32_t value);
  /// Stores the value, which ends the wait for the word.
  void release(std::size_t index, std::uint32_t value);
  /// Whether the stream executes all its commands within the limit.
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
