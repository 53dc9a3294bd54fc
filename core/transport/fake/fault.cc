#include "transport/fake/fault.h"

#include <algorithm>

#include "slipstream/error.h"

namespace slipstream {
namespace {

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit affects all output bits.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

bool spared(std::uint64_t seed, std::uint32_t num_streams, const FakeLane& lane) {
  const auto [low, high] = std::minmax(lane.from, lane.to);
  const double number = draw(seed, Draw::kSurvivor, {low, high, 0}, 0);
  return lane.stream == static_cast<std::uint32_t>(number * num_streams);
}

}  // namespace

double draw(std::uint64_t seed, Draw purpose, const FakeLane& lane, std::uint64_t count) {
  std::uint64_t state = mix(seed ^ mix(static_cast<std::uint64_t>(purpose)));
  state = mix(state ^ (std::uint64_t{lane.from} << 32 | lane.to));
  state = mix(state ^ lane.stream);
  state = mix(state ^ count);
  return static_cast<double>(state >> 11) * 0x1p-53;
}

std::vector<Fault> faults_after(const FaultSchedule& schedule, std::uint64_t seed,
                                std::uint32_t num_streams, const FakeLane& lane,
                                std::uint64_t count) {
  std::vector<Fault> due;
  for (const Fault& fault : schedule.faults) {
    if (fault.lane == lane && fault.after == count) due.push_back(fault);
  }
  const auto happens = [&](double probability, Draw purpose) {
    return probability > 0 && draw(seed, purpose, lane, count) < probability;
  };
  const RandomFaults& random = schedule.random;
  const auto lose = [&](double probability, Draw purpose, Fault::Action action) {
    if (!happens(probability, purpose) || spared(seed, num_streams, lane)) return;
    due.push_back({.action = action, .lane = lane, .after = count});
  };
  lose(random.lose_stream, Draw::kLoseStream, Fault::Action::kLoseStream);
  lose(random.lose_stream_late, Draw::kLoseStreamLate, Fault::Action::kLoseStreamLate);
  if (happens(random.freeze_link, Draw::kFreezeLink)) {
    const double share = draw(seed, Draw::kFreezeTime, lane, count);
    const auto nanoseconds = static_cast<double>(random.longest_freeze.count()) * share;
    due.push_back({.action = Fault::Action::kFreezeLink,
                   .lane = lane,
                   .after = count,
                   .duration = Nanoseconds(static_cast<std::int64_t>(nanoseconds))});
  }
  if (happens(random.kill_rank, Draw::kKillRank)) {
    due.push_back(
        {.action = Fault::Action::kKillRank, .lane = lane, .after = count, .victim = lane.from});
  }
  return due;
}

std::string describe(const Fault& fault) {
  std::string when = concat("after frame ", fault.after, " from ", fault.lane.from, " to ",
                            fault.lane.to, " on stream ", fault.lane.stream, ": ");
  switch (fault.action) {
    case Fault::Action::kLoseStream:
      return when + "lose the stream";
    case Fault::Action::kLoseStreamLate:
      return when + "lose the stream, the receiver last";
    case Fault::Action::kFreezeLink:
      return concat(when, "freeze the link for ", fault.duration.count(), " ns");
    case Fault::Action::kKillRank:
      return concat(when, "kill rank ", fault.victim);
  }
  return when;
}

}  // namespace slipstream
