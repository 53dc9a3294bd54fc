#pragma once

// The engine and the caller in tests of staging, and in the check of a real GPU.

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

/// The pattern of the result for a tensor with the pattern of `seed`.
constexpr std::uint32_t result_seed(std::uint32_t seed) { return ~seed; }

/// A small engine. It compares each chunk with the pattern of its tensor and replaces it by the
/// pattern of the result. Thread-safe. Chunks are handled in random order.
class StagedEngine {
 public:
  explicit StagedEngine(GatedRing& ring) : ring_(ring) {}

  void add(const Transfer& transfer, std::uint32_t seed);
  /// Handles one of the next chunks that is ready. Returns false if none is.
  bool turn(std::mt19937_64& random);
  /// Makes all operations fail: results are NaN from now on.
  void fail_operations();
  /// Handles no more chunks; waits for those that other threads handle now.
  void stop();

  [[nodiscard]] std::size_t num_unfinished() const;
  [[nodiscard]] std::size_t num_wrong_words() const;
  [[nodiscard]] bool is_nan(std::uint64_t number) const;

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
  std::set<std::uint64_t> nan_chunks_;
  bool fails_ = false;
  bool stopped_ = false;
};

/// Threads that call turn() as long as the object lives.
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

/// Tensors in device memory, and pinned memory for their inputs and results. They must outlive the
/// staging, which ends all waits when it is destroyed.
class StagedTensors {
 public:
  StagedTensors(Device& device, std::vector<std::size_t> sizes);

  [[nodiscard]] std::size_t count() const { return sizes_.size(); }
  [[nodiscard]] std::size_t size(std::size_t index) const { return sizes_[index]; }
  [[nodiscard]] static std::uint32_t seed(std::size_t index) {
    return static_cast<std::uint32_t>(index) * 77 + 5;
  }
  [[nodiscard]] DeviceAddress source(std::size_t index) const;
  /// Every other tensor is replaced by its result.
  [[nodiscard]] DeviceAddress target(std::size_t index) const;
  [[nodiscard]] StagedRow row(std::size_t index) const {
    return {size(index), source(index), target(index)};
  }
  [[nodiscard]] StreamHandle before() const { return before_.get(); }
  [[nodiscard]] StreamHandle after() const { return after_.get(); }

  /// Enqueues a copy of the input to device memory in the stream before().
  void compute(std::size_t index);
  /// Submits the tensor, and enqueues a copy of the result to the host in the stream after().
  Transfer send(std::size_t index, Staging& staging, StagedEngine& engine);
  void synchronize();
  /// The result, after synchronize().
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

/// Submits tensors of these sizes with some threads of the engine, and compares all words.
RoundTrips run_round_trips(Device& device, const StagingOptions& options,
                           const std::vector<std::size_t>& sizes, unsigned num_threads);

}  // namespace slipstream::test
