#include <gtest/gtest.h>

#include <charconv>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

#include "test/schedule_rank.h"
#include "test/shm_world.h"
#include "test/tcp_world.h"

// Random programs of collectives on the memory of fake devices, in random worlds, with faults.
// Whatever happens, nothing hangs, every operation ends, and a result is that of the CPU.
//
// `make test` runs a share of the seeds, another one at each commit; SHARE=all runs all of them.
// `schedule_fuzz_test --seeds=7` and `--seeds=1:10000` run these.
namespace slipstream::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kShare = 50;
#else
constexpr std::uint64_t kShare = 500;
#endif
constexpr std::uint64_t kNumSeeds = 10'000;
constexpr Nanoseconds kLongest = 60s;  // of one seed, on a busy machine under a sanitizer

struct Seeds {
  std::uint64_t first = 1, last = kShare;
} seeds;

std::unique_ptr<EngineWorld> make_world(const Schedule& schedule) {
  switch (schedule.network) {
    case Schedule::Network::kShm:
      return std::make_unique<EngineWorld>(schedule.size, shm_family("Shm", {}), schedule.engine);
    case Schedule::Network::kTcp:
      return std::make_unique<EngineWorld>(schedule.size, tcp_family("Tcp", {}), schedule.engine);
    default:
      return std::make_unique<EngineWorld>(schedule.size, schedule.fake, schedule.engine,
                                           schedule.places);
  }
}

/// One seed. While it lives, a thread watches that it ends.
class ScheduleRun {
 public:
  explicit ScheduleRun(std::uint64_t seed)
      : schedule_(draw_schedule(seed)), world_(make_world(schedule_)) {
    for (std::uint32_t rank = 0; rank < schedule_.size; ++rank) {
      ranks_.push_back(std::make_unique<ScheduleRank>((*world_)[rank], schedule_, *world_));
    }
    watchdog_ = std::thread([this] { watch(); });
  }
  ScheduleRun(const ScheduleRun&) = delete;
  ScheduleRun& operator=(const ScheduleRun&) = delete;
  ~ScheduleRun() {
    ended_.finish(std::nullopt);
    watchdog_.join();
  }

  /// Plays the schedule and returns what was wrong.
  std::string play() {
    world_->each([&](EngineRank& self) { ranks_[self.rank]->expect(); });
    world_->each([&](EngineRank& self) { ranks_[self.rank]->run(); });
    world_->each([&](EngineRank& self) { ranks_[self.rank]->close(); });
    std::string findings;
    for (const auto& rank : ranks_) findings += rank->findings();
    return findings;
  }

  [[nodiscard]] std::string title() const {
    std::ostringstream text;
    text << "seed " << schedule_.seed << ", " << schedule_.size << " ranks, "
         << describe(schedule_.trouble) << "\n";
    for (std::size_t i = 0; i < schedule_.calls.size(); ++i) {
      text << "  call " << i << ": " << describe(schedule_.calls[i]) << "\n";
    }
    return text.str();
  }

 private:
  void watch() {
    if (ended_.wait(Clock::now() + kLongest)) return;
    std::cerr << "after " << seconds(kLongest) << " s it has not ended: " << title() << std::flush;
    for (const auto& rank : ranks_) std::cerr << rank->describe() << std::flush;
    std::abort();
  }

  const Schedule schedule_;
  std::unique_ptr<EngineWorld> world_;
  std::vector<std::unique_ptr<ScheduleRank>> ranks_;
  Completion ended_;
  std::thread watchdog_;
};

TEST(ScheduleFuzz, EveryProgramEndsWithTheResultsOfTheCpu) {
  for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    ScheduleRun run(seed);
    const std::string findings = run.play();
    ASSERT_EQ(findings, "") << run.title();
  }
}

/// The seeds of the share with this number; all of them if it is "all".
Seeds share_of(std::string_view share) {
  if (share == "all") return {1, kNumSeeds};
  const std::uint64_t number = std::strtoull(std::string(share).c_str(), nullptr, 10);
  const std::uint64_t first = number % (kNumSeeds / kShare) * kShare + 1;
  return {first, first + kShare - 1};
}

/// "7" or "1:100".
Seeds seeds_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::uint64_t first = std::strtoull(text.c_str(), nullptr, 10);
  if (colon == std::string::npos) return {first, first};
  return {first, std::strtoull(text.c_str() + colon + 1, nullptr, 10)};
}

}  // namespace
}  // namespace slipstream::test

int main(int argc, char** argv) {
  using namespace slipstream::test;
  testing::InitGoogleTest(&argc, argv);
  if (const char* share = std::getenv("SHARE")) seeds = share_of(share);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--seeds=")) seeds = seeds_of(argument.substr(8));
  }
  return RUN_ALL_TESTS();
}
