#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace slipstream {

/// One direction of one stream between two ranks.
struct FakeLane {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t stream = 0;

  bool operator==(const FakeLane&) const = default;
};

/// A fault that happens as soon as `after` frames (counted from 1) have been sent on `lane`.
struct Fault {
  enum class Action : std::uint8_t {
    kLoseStream,      ///< frames in flight vanish in both directions; both ends lose the stream
    kLoseStreamLate,  ///< the sender loses it at once, the receiver after the frames in flight
    kFreezeLink,  ///< frames from `lane.from` to `lane.to` arrive `duration` late, on all streams
    kKillRank,    ///< all streams of rank `victim` are lost, at both ends
  };
  Action action = Action::kLoseStream;
  FakeLane lane{};
  std::uint64_t after = 1;
  std::uint32_t victim = 0;
  Nanoseconds duration{0};

  bool operator==(const Fault&) const = default;
};

[[nodiscard]] inline bool loses_stream(Fault::Action action) {
  return action == Fault::Action::kLoseStream || action == Fault::Action::kLoseStreamLate;
}

/// "after frame 7 from 0 to 2 on stream 1: kill rank 0"
std::string describe(const Fault& fault);

/// Probabilities for every frame sent. One stream of each pair of ranks, drawn from the seed, is
/// never lost at random, so a pair can always recover.
struct RandomFaults {
  double lose_stream = 0;
  double lose_stream_late = 0;
  double freeze_link = 0;
  Nanoseconds longest_freeze{1ms};
  double kill_rank = 0;  ///< for the sender
};

/// The faults of a FakeNetwork. Whether a fault happens depends on the seed, the lane and the
/// number of the frame in its lane, but never on time or on other lanes.
struct FaultSchedule {
  std::vector<Fault> faults{};
  RandomFaults random{};
};

/// The faults that frame number `count` of `lane` triggers.
std::vector<Fault> faults_after(const FaultSchedule& schedule, std::uint64_t seed,
                                std::uint32_t num_streams, const FakeLane& lane,
                                std::uint64_t count);

/// The purpose of a random number in [0, 1); each purpose has its own sequence.
enum class Draw : std::uint64_t {
  kJitter = 1,
  kSplit,
  kLoseStream,
  kLoseStreamLate,
  kFreezeLink,
  kFreezeTime,
  kKillRank,
  kSurvivor
};

/// A uniform random number in [0, 1); the same arguments give the same number.
double draw(std::uint64_t seed, Draw purpose, const FakeLane& lane, std::uint64_t count);

}  // namespace slipstream
