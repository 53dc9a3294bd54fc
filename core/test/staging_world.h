#pragma once

// What stands for the engine and for the caller in tests of staging, and on a machine with a GPU.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "device/staging.h"
#include "test/device_contract.h"

namespace slipstream::test {

/// The pattern that a tensor comes back with, if it went away with the pattern of `seed`.
constexpr std::uint32_t result_seed(std::uint32_t seed) { return ~seed; }

/// An engine in small: it checks that each chunk is the pattern of its tensor, and puts the pattern
/// of the result in its place. Thread-safe; a chunk is handled by one thread, and chunks in any
/// order.
class StagedEngine {
 public:
  explicit StagedEngine(GatedRing& ring) : ring_(ring) {}

  void add(const Transfer& transfer, std::uint32_t seed);
  /// Handles a chunk that is ready, one of the next ones. False if none of them is.
  bool turn(std::mt19937_64& random);
  /// The operations fail: chunks are spoiled from now on.
  void spoil();
  /// Waits until no chunk is in hand; from then on none is taken.
  void stop();

  [[nodiscard]] std::size_t num_unfinished() const;
  [[nodiscard]] std::size_t num_wrong_words() const;
  [[nodiscard]] bool is_spoiled(std::uint64_t number) const;

 private:
  struct Chunk {
    std::uint64_t number;
    std::uint32_t sequence;
    std::uint32_t seed;
    std::size_t first_word;
    std::size_t num_bytes;
  };

  std::optional<Chunk> take(std::mt19937_64& random);
  void handle(const Chunk& chunk);

  GatedRing& ring_;
  mutable std::mutex mutex_;  ///< guards everything below
  std::deque<Chunk> chunks_;  ///< that nobody has taken
  std::size_t num_in_hand_ = 0;
  std::size_t num_wrong_words_ = 0;
  std::set<std::uint64_t> spoiled_;
  bool spoils_ = false;
  bool stopped_ = false;
};

/// Threads that turn an engine while they live; they may not call a device.
class EngineThreads {
 public:
  EngineThreads(StagedEngine& engine, unsigned count, std::uint64_t seed = 1);
  EngineThreads(const EngineThreads&) = delete;
  EngineThreads& operator=(const EngineThreads&) = delete;
  ~EngineThreads();

 private:
  std::atomic<bool> ending_{false};
  std::vector<std::thread> threads_;
};

/// Some tensors: where they are on the device, and the pinned memory that they are filled from and
/// read back to. It must outlive the staging, which ends all waits as it goes.
class StagedTensors {
 public:
  StagedTensors(Device& device, std::vector<std::size_t> sizes);

  [[nodiscard]] std::size_t count() const { return sizes_.size(); }
  [[nodiscard]] std::size_t size(std::size_t index) const { return sizes_[index]; }
  [[nodiscard]] static std::uint32_t seed(std::size_t index) {
    return static_cast<std::uint32_t>(index) * 77 + 5;
  }
  [[nodiscard]] DeviceAddress source(std::size_t index) const;
  /// Every other tensor comes back to where it was.
  [[nodiscard]] DeviceAddress target(std::size_t index) const;
  [[nodiscard]] StreamHandle before() const { return before_.get(); }
  [[nodiscard]] StreamHandle after() const { return after_.get(); }

  /// Enqueues, in the stream `before`, what computes the tensor.
  void compute(std::size_t index);
  /// Takes the tensor through the host, and enqueues, in the stream `after`, what uses the result.
  Transfer send(std::size_t index, Staging& staging, StagedEngine& engine);
  void synchronize();
  /// What the stream `after` found, once it is done.
  [[nodiscard]] std::span<const std::byte> result(std::size_t index);

 private:
  [[nodiscard]] std::span<std::byte> upload(std::size_t index);

  Device& device_;
  std::vector<std::size_t> sizes_;
  std::vector<std::size_t> offsets_;  ///< in all three memories; the last one is the total
  DeviceMemory sources_;
  DeviceMemory targets_;
  PinnedMemory host_;
  OwnedStream before_;
  OwnedStream after_;
};

struct RoundTrips {
  std::size_t wrong_words_at_host = 0;
  std::size_t wrong_words_at_device = 0;
};

/// Takes tensors through the host with some threads of the engine; returns what was wrong.
RoundTrips run_round_trips(Device& device, const StagingOptions& options,
                           const std::vector<std::size_t>& sizes, unsigned num_threads);

}  // namespace slipstream::test
