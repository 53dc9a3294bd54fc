#include "engine/stream_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

// Tests the number of streams on networks that are functions: streams in use -> bytes per second.
namespace slipstream::test {
namespace {

using Network = std::function<double(std::uint32_t)>;

constexpr double kGigabit = 125e6;

/// Runs the tuner for `time`, in polls of 2 ms. Returns the bytes per second that it reached.
double run(StreamTuner& tuner, const Network& network, Nanoseconds time, double noise = 0) {
  constexpr Nanoseconds kPoll = 2ms;
  double bytes = 0;
  std::uint32_t random = 1;
  for (Nanoseconds at{}; at < time; at += kPoll) {
    random = random * 1664525U + 1013904223U;
    const double jitter = 1 + noise * (static_cast<double>(random >> 8U) / (1 << 23) - 1);
    const double rate = network(tuner.count()) * jitter;
    const double poll = rate * std::chrono::duration<double>(kPoll).count();
    tuner.note(0, kPoll, static_cast<std::uint64_t>(poll));
    tuner.waited(kPoll);
    bytes += poll;
  }
  return bytes / std::chrono::duration<double>(time).count();
}

double capped(std::uint32_t streams) { return std::min(kGigabit, streams * kGigabit / 4); }
double plain(std::uint32_t) { return kGigabit; }
/// A network on which many flows slow one another down.
double fragile(std::uint32_t streams) { return kGigabit / (1 + 0.2 * (streams - 1)); }

TEST(StreamTuner, FillsALinkWhoseFlowsAreCapped) {
  StreamTuner tuner(8, false);
  run(tuner, capped, 3s);
  EXPECT_GE(run(tuner, capped, 60s), 0.98 * kGigabit);
  EXPECT_GE(tuner.count(), 4U);
}

TEST(StreamTuner, TakesFewWhereMoreBringNothing) {
  StreamTuner tuner(8, false);
  run(tuner, plain, 10s, 0.02);
  EXPECT_LE(tuner.count(), 2U);
}

TEST(StreamTuner, GoesDownToOneWhereFlowsHurtOneAnother) {
  StreamTuner tuner(8, false);
  run(tuner, fragile, 5s);
  EXPECT_GE(run(tuner, fragile, 100s), 0.98 * kGigabit);
  EXPECT_EQ(tuner.count(), 1U);
}

TEST(StreamTuner, CostsLittleWhereThereIsNothingToGain) {
  for (const auto& network : {Network(capped), Network(fragile)}) {
    StreamTuner tuner(8, false);
    run(tuner, network, 5s, 0.02);
    EXPECT_GE(run(tuner, network, 300s, 0.02), 0.98 * kGigabit);
  }
}

TEST(StreamTuner, EndsOfOperationsAreNoChangeOfTheNetwork) {
  int polls = 0;
  const auto with_pauses = [&](std::uint32_t) { return ++polls % 250 < 40 ? 0.4e8 : kGigabit; };
  StreamTuner tuner(8, false);
  run(tuner, with_pauses, 10s, 0.02);
  int many = 0;
  for (int i = 0; i < 1000; ++i) {
    run(tuner, with_pauses, 60ms, 0.02);
    many += tuner.count() > 2 ? 1 : 0;
  }
  EXPECT_LE(many, 50);  // only during trials
}

TEST(StreamTuner, FollowsTheNetwork) {
  StreamTuner tuner(8, false);
  run(tuner, plain, 20s);
  EXPECT_LE(tuner.count(), 2U);
  run(tuner, capped, 30s);
  EXPECT_GE(tuner.count(), 4U);
  EXPECT_GE(run(tuner, capped, 30s), 0.97 * kGigabit);
  run(tuner, fragile, 60s);
  EXPECT_LE(tuner.count(), 2U);
}

TEST(StreamTuner, SaysWhatItChoseAndWhy) {
  StreamTuner tuner(8, false);
  std::string news;
  for (int i = 0; i < 1000 && news.empty(); ++i) {
    run(tuner, capped, 2ms);
    news = tuner.take_news();
  }
  EXPECT_EQ(news, "2 streams carry 2 times as much as 1");
  EXPECT_EQ(tuner.take_news(), "");
}

/// An operation continues with peers behind a slower link, as an operation over racks does.
TEST(StreamTuner, PhasesWithNearerPeersAreNoGain) {
  StreamTuner tuner(16, false);
  std::uint32_t most = 0;
  for (int i = 0; i < 50'000; ++i) {
    const bool is_near = i / 137 % 3 == 0;
    tuner.note(is_near ? 1 : 3, 2ms, is_near ? 120'000 : 15'000);
    tuner.waited(2ms);
    if (i > 5'000) most = std::max(most, tuner.count());
  }
  EXPECT_LE(most, 4U);  // during trials
  EXPECT_EQ(tuner.count(), 1U);
}

TEST(StreamTuner, WhatOnePeerGainsAtTheExpenseOfOthersIsNoGain) {
  StreamTuner tuner(16, false);
  for (int i = 0; i < 5'000; ++i) {
    const std::uint64_t more = tuner.count() > 1 ? 50'000 : 0;
    tuner.note(0, 2ms, 100'000 + more);
    tuner.note(1, 2ms, 100'000 - more);
    tuner.waited(2ms);
  }
  EXPECT_EQ(tuner.count(), 1U);
}

/// Ranks in a ring, each with its own link to the next. All advance at the pace of the slowest, so
/// the others wait for the network for less of the time.
class Ring {
 public:
  explicit Ring(std::vector<Network> links) : links_(std::move(links)) {
    for (std::size_t rank = 0; rank < links_.size(); ++rank) tuners_.emplace_back(16, false);
  }

  void run(Nanoseconds time) {
    constexpr Nanoseconds kPoll = 2ms;
    for (Nanoseconds at{}; at < time; at += kPoll) poll(kPoll);
  }
  [[nodiscard]] std::uint32_t count() const { return tuners_[0].count(); }
  [[nodiscard]] double rate() const {
    double least = kGigabit;
    for (const Network& link : links_) least = std::min(least, link(count()));
    return least;
  }

 private:
  void poll(Nanoseconds time) {
    const double seconds = std::chrono::duration<double>(time).count();
    const double slowest = rate();
    for (std::size_t rank = 0; rank < links_.size(); ++rank) {
      waited_[rank] += seconds * slowest / links_[rank](count());
      if (waited_[rank] < seconds) continue;  // it waits only in some polls
      waited_[rank] -= seconds;
      const double bytes = links_[rank](count()) * seconds;
      tuners_[rank].note(0, time, static_cast<std::uint64_t>(bytes));
      tuners_[rank].waited(time);
    }
    for (std::uint32_t rank = 1; rank < tuners_.size(); ++rank) {
      tuners_[rank].follow(StreamTuner::Plan::unpacked(tuners_[0].plan().packed()));
      if (const auto report = tuners_[rank].take_report()) tuners_[0].hear(rank, *report);
    }
  }

  std::vector<Network> links_;
  std::vector<StreamTuner> tuners_;
  std::map<std::size_t, double> waited_;
};

/// One path; two paths, of which the fourth stream finds the second one.
double one_path(std::uint32_t) { return 0.6 * kGigabit; }
double two_paths(std::uint32_t streams) { return kGigabit * (streams < 4 ? 0.4 : 0.55); }

TEST(StreamTuner, AnotherRankMayNeedMoreThanTheOneThatDecides) {
  Ring ring({one_path, one_path, two_paths, one_path});
  ring.run(60s);
  EXPECT_EQ(ring.count(), 4U);
}

TEST(StreamTuner, FollowsWhatAnotherRankMeets) {
  double one_stream = kGigabit;
  const auto changing = [&](std::uint32_t streams) {
    return std::min(kGigabit, streams * one_stream);
  };
  Ring ring({plain, plain, plain, changing});
  ring.run(30s);
  EXPECT_EQ(ring.count(), 1U);
  one_stream = kGigabit / 4;
  ring.run(60s);
  EXPECT_EQ(ring.count(), 4U);
}

TEST(StreamTuner, FollowsWhatAllMeetAtOnce) {
  double one_stream = kGigabit;
  const auto link = [&](double share) {
    return [&one_stream, share](std::uint32_t streams) {
      return share * std::min(kGigabit, streams * one_stream);
    };
  };
  Ring ring({link(1), link(0.9), link(0.8), link(0.95)});
  ring.run(30s);
  EXPECT_EQ(ring.count(), 1U);
  one_stream = kGigabit / 4;
  ring.run(60s);
  EXPECT_GE(ring.count(), 4U);
}

/// Waits for `time` while only `bytes` per second are delivered to one peer.
void wait(StreamTuner& tuner, Nanoseconds time, std::uint64_t bytes) {
  for (Nanoseconds at{}; at < time; at += 10ms) {
    tuner.note(0, 10ms, bytes / 100);
    tuner.waited(10ms);
  }
}

TEST(StreamTuner, WhatARankWaitedIsKeptWhenTheDeciderWasSilent) {
  using Trial = StreamTuner::Trial;
  StreamTuner tuner(16, false);
  tuner.follow({Trial::kNone, 4, 4, 1});
  wait(tuner, 10s, 100'000'000);
  tuner.lead();
  tuner.follow({Trial::kNone, 4, 4, 1});
  (void)tuner.take_report();
  tuner.follow({Trial::kMore, 8, 4, 2});
  const auto report = tuner.take_report();
  ASSERT_TRUE(report);
  EXPECT_NEAR(report->waited, 10, 0.1);
}

TEST(StreamTuner, WhoeverTakesOverEndsTheTrial) {
  StreamTuner tuner(16, false);
  tuner.follow({StreamTuner::Trial::kConfirm, 8, 4, 1});
  tuner.lead();
  EXPECT_EQ(tuner.plan().trial, StreamTuner::Trial::kNone);
  EXPECT_EQ(tuner.count(), 4U);
}

TEST(StreamTuner, WhoeverTakesOverTriesAgainSoon) {
  using Trial = StreamTuner::Trial;
  StreamTuner tuner(16, false);
  tuner.follow({Trial::kMore, 8, 4, 1});
  tuner.lead();
  wait(tuner, 1s, 100'000'000);
  EXPECT_EQ(tuner.plan().trial, Trial::kMore);
}

/// An operation with near peers is over, and one with other peers continues for long.
TEST(StreamTuner, ATrialThatOnlyOtherPeersMeetIsGivenUp) {
  using Trial = StreamTuner::Trial;
  StreamTuner tuner(16, false);
  for (int i = 0; i < 10'000 && tuner.plan().trial == Trial::kNone; ++i) {
    tuner.note(0, 2ms, 100'000);
    tuner.waited(2ms);
  }
  ASSERT_EQ(tuner.plan().trial, Trial::kMore);
  std::uint32_t tried = 0;
  for (int i = 0; i < 10'000 && tuner.plan().trial != Trial::kNone; ++i, ++tried) {
    tuner.note(3, 2ms, 100'000);
    tuner.waited(2ms);
  }
  EXPECT_EQ(tuner.plan().trial, Trial::kNone);
  EXPECT_EQ(tuner.count(), 1U);
  EXPECT_LT(tried, 1'000U);
}

TEST(StreamTuner, WhoWaitsForTheFirstTimeWithFewerHasLost) {
  using Trial = StreamTuner::Trial;
  StreamTuner tuner(16, false);
  tuner.follow({Trial::kNone, 4, 4, 1});
  wait(tuner, 100ms, 100'000'000);
  tuner.follow({Trial::kFewer, 3, 4, 2});
  (void)tuner.take_report();
  wait(tuner, 1s, 100'000'000);
  const auto report = tuner.take_report();
  ASSERT_TRUE(report);
  EXPECT_GT(report->gain, 0);
  EXPECT_LT(report->gain, 1e-6);
}

TEST(StreamTuner, AGainThatAnotherRankHoldsBackIsNone) {
  Ring ring({capped, [](std::uint32_t) { return 0.2 * kGigabit; }});
  ring.run(60s);
  EXPECT_EQ(ring.count(), 1U);
}

TEST(StreamTuner, AllFindTheNumberWhereAllNeedIt) {
  Ring ring({capped, capped, capped, capped});
  ring.run(60s);
  EXPECT_EQ(ring.count(), 4U);
}

TEST(StreamTuner, TriesNothingWhereTheNumberIsGiven) {
  StreamTuner tuner(5, true);
  run(tuner, fragile, 20s);
  EXPECT_EQ(tuner.count(), 5U);
}

}  // namespace
}  // namespace slipstream::test
