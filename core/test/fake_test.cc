#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "slipstream/error.h"
#include "test/transport_world.h"
#include "transport/fake/fake_transport.h"

namespace slipstream::test {
namespace {

/// Connected ranks of a network that the test can manipulate.
struct FakeWorld {
  explicit FakeWorld(std::uint32_t world_size, FakeOptions options = {})
      : network(world_size, std::move(options)), world(family(), world_size) {}

  TransportRank& operator[](std::uint32_t rank) const { return world[rank]; }

  FakeNetwork network;
  TransportWorld world;

 private:
  TransportFamily family() {
    const auto make = [this](std::span<Doorbell* const> doorbells) {
      Wires wires;
      for (std::uint32_t rank = 0; rank < doorbells.size(); ++rank) {
        wires.transports.push_back(
            std::make_unique<FakeTransport>(network, rank, doorbells[rank]->bell()));
      }
      return wires;
    };
    return {.name = "Fake", .make = make};
  }
};

FaultSchedule only(const Fault& fault) { return {.faults = {fault}}; }

TEST(Fake, AFrameArrivesWhenItsDelayIsOver) {
  FakeWorld ranks(2, {.delay = 20ms});
  const TimePoint sent_at = Clock::now();
  ASSERT_TRUE(ranks[0].try_send(1, 1, 100));
  EXPECT_GE(ranks[1].transport->next_event(), sent_at + 20ms);
  EXPECT_LE(ranks[1].transport->next_event(), Clock::now() + 20ms);
  EXPECT_TRUE(ranks[1].drive_until([&] { return ranks[1].sink.num_received == 1; }));
  EXPECT_GE(Clock::now(), sent_at + 20ms);
  EXPECT_EQ(ranks[1].transport->next_event(), TimePoint::max());
  ranks.world.expect_equal();
}

TEST(Fake, BandwidthDelaysWhatIsQueuedBehind) {
  FakeWorld ranks(2, {.capacity_frames = 100, .bytes_per_second = 100e6});
  const TimePoint sent_at = Clock::now();
  for (int count = 0; count < 20; ++count) ASSERT_TRUE(ranks[0].try_send(1, 1, 100'000));
  EXPECT_TRUE(ranks[1].drive_until([&] { return ranks[1].sink.num_received == 20; }));
  EXPECT_GE(Clock::now() - sent_at, 20ms);
}

TEST(Fake, StreamsOvertakeOneAnotherAndKeepTheirOwnOrder) {
  FakeWorld ranks(2, {.num_streams = 3, .capacity_frames = 100, .jitter = 5ms});
  std::vector<std::uint32_t> order;
  ranks[1].sink.on_arrived = [&](std::uint32_t, std::uint32_t stream, const Frame&, auto) {
    order.push_back(stream);
  };
  for (std::uint32_t count = 0; count < 60; ++count) ranks.world.send(0, 1, count % 3, 10);
  ranks.world.expect_delivered();
  std::vector<std::uint32_t> sent_order(60);
  for (std::uint32_t count = 0; count < 60; ++count) sent_order[count] = count % 3;
  EXPECT_NE(order, sent_order);
}

TEST(Fake, TakesAsManyFramesAsItsCapacity) {
  FakeWorld ranks(2, {.capacity_frames = 5});
  EXPECT_EQ(ranks.world.fill(0, 1, 1, 10), 5U);
  EXPECT_TRUE(ranks[1].poll());
  EXPECT_TRUE(ranks[0].link(1).ready(1));
  EXPECT_TRUE(ranks[0].poll()) << "the sender was not told that there is room";
  EXPECT_EQ(ranks.world.fill(0, 1, 1, 10), 5U);
}

TEST(Fake, ReadsTheSourceAtDeliveryUnlessItCopies) {
  for (const bool copies : {false, true}) {
    FakeWorld ranks(2, {.copies_payload = copies});
    std::vector<std::byte> source(100, std::byte{1});
    const Frame frame{.kind = FrameKind::kSegment, .length = 100};
    ASSERT_TRUE(ranks[0].link(1).send(1, frame, source));
    std::ranges::fill(source, std::byte{2});
    EXPECT_TRUE(ranks[1].poll());
    const std::byte expected{static_cast<unsigned char>(copies ? 1 : 2)};
    const std::vector<Message>& received = ranks[1].sink.received[{0, 1}];
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].payload, std::vector<std::byte>(100, expected));
  }
}

TEST(Fake, ASplitPayloadIsHalfThereAndMayDieThen) {
  FakeWorld ranks(2, {.split_probability = 1});
  std::vector<std::byte> place(100);
  ranks[1].sink.on_place = [&](std::uint32_t, const Frame&) { return place.data(); };
  ASSERT_TRUE(ranks[0].try_send(1, 1, 100));
  const std::vector<std::byte>& sent = ranks[0].sent[{1, 1}][0].payload;
  EXPECT_TRUE(ranks[1].poll());
  EXPECT_EQ(ranks[1].sink.num_received, 0U);
  EXPECT_TRUE(std::equal(place.begin(), place.begin() + 50, sent.begin()));
  EXPECT_EQ(place[99], std::byte{0});
  ranks.network.lose_stream(0, 1, 1);
  EXPECT_TRUE(ranks.world.poll_until([&] { return ranks[1].sink.lost.contains({0, 1}); }));
  EXPECT_EQ(ranks[1].sink.num_received, 0U);
  EXPECT_EQ(ranks[1].sink.num_placed, 1U);
}

TEST(Fake, ALostStreamTakesWhatIsInFlightAndNoOtherStream) {
  FakeWorld ranks(2, {.schedule = only({.lane = {0, 1, 1}, .after = 4})});
  for (int count = 0; count < 2; ++count) ASSERT_TRUE(ranks[0].try_send(1, 1, 10));
  EXPECT_TRUE(ranks.world.poll_until([&] { return ranks[1].sink.num_received == 2; }));
  for (const std::uint32_t stream : {1U, 0U, 1U, 1U}) {
    ASSERT_TRUE(ranks[0].try_send(1, stream, 10));
  }
  ASSERT_TRUE(ranks[1].try_send(0, 1, 10));
  const auto lost = [&](std::uint32_t rank, std::uint32_t peer) {
    return ranks[rank].sink.lost.contains({peer, 1});
  };
  EXPECT_TRUE(ranks.world.poll_until([&] { return lost(0, 1) && lost(1, 0); }));
  EXPECT_EQ((ranks[1].sink.received[{0, 1}].size()), 2U);
  EXPECT_EQ(ranks[0].sink.num_received, 0U);
  EXPECT_EQ((ranks[1].sink.lost[{0, 1}]), "after frame 4 from 0 to 1 on stream 1: lose the stream");
  EXPECT_FALSE(ranks[0].try_send(1, 1, 10));
  EXPECT_TRUE(ranks[0].link(1).alive(0));
  ranks.world.send(1, 0, 0, 10);
  EXPECT_TRUE(ranks.world.poll_until([&] { return ranks[0].sink.num_received == 1; }));
  EXPECT_EQ((ranks[1].sink.received[{0, 0}].size()), 1U);
}

TEST(Fake, AStreamLostLateDeliversWhatIsInFlightAfterTheSenderHasLostIt) {
  const Fault late{.action = Fault::Action::kLoseStreamLate, .lane = {0, 1, 1}, .after = 3};
  FakeWorld ranks(2, {.delay = 10ms, .schedule = only(late)});
  std::vector<std::byte> source(10, std::byte{1});
  const Frame frame{.kind = FrameKind::kSegment, .length = 10};
  ASSERT_TRUE(ranks[1].try_send(0, 1, 10));
  for (int count = 0; count < 4; ++count) ASSERT_TRUE(ranks[0].link(1).send(1, frame, source));
  EXPECT_TRUE(ranks[0].poll());
  EXPECT_TRUE(ranks[0].sink.lost.contains({1, 1}));
  std::ranges::fill(source, std::byte{2});  // its sender may have it back as soon as it was resent
  EXPECT_EQ(ranks[1].sink.num_received, 0U);
  EXPECT_TRUE(ranks[1].drive_until([&] { return ranks[1].sink.lost.contains({0, 1}); }));
  const std::vector<Message>& received = ranks[1].sink.received[{0, 1}];
  ASSERT_EQ(received.size(), 3U);
  EXPECT_EQ(received[2].payload, std::vector<std::byte>(10, std::byte{1}));
  EXPECT_EQ(ranks[0].sink.num_received, 0U);
}

TEST(Fake, AFrozenLinkIsLateAndLosesNothing) {
  const Fault freeze{
      .action = Fault::Action::kFreezeLink, .lane = {0, 1, 1}, .after = 1, .duration = 20ms};
  FakeWorld ranks(2, {.schedule = only(freeze)});
  const TimePoint sent_at = Clock::now();
  ASSERT_TRUE(ranks[0].try_send(1, 1, 10));
  ASSERT_TRUE(ranks[0].try_send(1, 0, 10));
  ASSERT_TRUE(ranks[1].try_send(0, 1, 10));
  EXPECT_TRUE(ranks[0].poll()) << "the other direction is not frozen";
  EXPECT_TRUE(ranks[1].drive_until([&] { return ranks[1].sink.num_received == 2; }));
  EXPECT_GE(Clock::now(), sent_at + 20ms);
  ranks.world.expect_delivered();
}

TEST(Fake, AKilledRankIsLostToItsPeersOnly) {
  const Fault kill{.action = Fault::Action::kKillRank, .lane = {0, 1, 0}, .after = 2, .victim = 2};
  FakeWorld ranks(3, {.num_streams = 3, .copies_payload = true, .schedule = only(kill)});
  ASSERT_TRUE(ranks[0].try_send(1, 0, 10));
  ASSERT_TRUE(ranks[2].try_send(1, 0, 10));
  ASSERT_TRUE(ranks[0].try_send(1, 0, 10));
  EXPECT_TRUE(ranks.world.poll_until([&] { return ranks[2].sink.lost.size() == 6; }));
  for (const std::uint32_t survivor : {0U, 1U}) {
    EXPECT_EQ(ranks[survivor].sink.lost.size(), 3U);
    EXPECT_TRUE(ranks[survivor].sink.lost.contains({2, 0}));
  }
  EXPECT_EQ((ranks[1].sink.received[{2, 0}].size()), 0U);
  EXPECT_EQ((ranks[1].sink.received[{0, 0}].size()), 2U);
}

TEST(Fake, RandomFaultsDependOnTheSeedAndOnNothingElse) {
  const FaultSchedule schedule{
      .random = {.lose_stream = 0.1, .freeze_link = 0.1, .kill_rank = 0.1}};
  const auto draw_all = [&](std::uint64_t seed) {
    std::vector<Fault> all;
    for (std::uint64_t count = 1; count <= 1000; ++count) {
      const auto due = faults_after(schedule, seed, 4, {1, 2, 3}, count);
      all.insert(all.end(), due.begin(), due.end());
    }
    return all;
  };
  EXPECT_EQ(draw_all(7), draw_all(7));
  EXPECT_NE(draw_all(7), draw_all(8));
  const auto lost = std::ranges::count_if(
      draw_all(7), [](const Fault& f) { return f.action == Fault::Action::kLoseStream; });
  EXPECT_GT(lost, 50);
  EXPECT_LT(lost, 200);
}

TEST(Fake, RandomLossesSpareOneStreamOfEachPair) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U, 6U}) {
    FakeWorld ranks(2,
                    {.num_streams = 3, .seed = seed, .schedule = {.random = {.lose_stream = 1}}});
    for (std::uint32_t stream = 0; stream < 3; ++stream) {
      ranks[0].try_send(1, stream, 10);
      ranks[1].try_send(0, stream, 10);
    }
    EXPECT_TRUE(ranks.world.poll_until([&] { return ranks[1].sink.num_received == 1; }));
    EXPECT_EQ(ranks[0].sink.lost.size(), 2U);
    EXPECT_EQ(ranks[1].sink.lost.size(), 2U);
  }
}

/// The messages that rank 1 receives of 200 frames on four streams.
std::map<PeerStream, std::vector<Message>> run_with(const FaultSchedule& schedule,
                                                    std::vector<Fault>& happened) {
  FakeWorld ranks(2, {.num_streams = 4, .seed = 5, .schedule = schedule});
  for (std::uint32_t count = 0; count < 200; ++count) {
    ranks[0].try_send(1, count % 4, 10);
    ranks.world.poll();
  }
  happened = ranks.network.happened();
  return ranks[1].sink.received;
}

TEST(Fake, WhatHappenedAtRandomCanBeReplayed) {
  std::vector<Fault> at_random;
  std::vector<Fault> replayed;
  const auto received =
      run_with({.random = {.lose_stream = 0.05, .lose_stream_late = 0.05}}, at_random);
  EXPECT_GT(at_random.size(), 0U);
  EXPECT_TRUE(received == run_with({.faults = at_random}, replayed));
  EXPECT_EQ(at_random, replayed);
}

TEST(Fake, RefusesToLoseSingleStreamsWhenItCopiesPayload) {
  const auto refused = [](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kUsage;
    }
    return false;
  };
  EXPECT_TRUE(refused(
      [] { FakeNetwork(2, {.copies_payload = true, .schedule = only({.lane = {0, 1, 1}})}); }));
  EXPECT_TRUE(refused([] { FakeNetwork(2, {.copies_payload = true}).lose_stream(0, 1, 1); }));
  EXPECT_TRUE(refused([] { FakeNetwork(0, {}); }));
}

TEST(Fake, CountsTrafficByLinkAndKind) {
  FakeWorld ranks(3);
  for (const std::uint32_t bytes : {10U, 20U}) ASSERT_TRUE(ranks[0].try_send(1, 1, bytes));
  const Frame beat{.kind = FrameKind::kHeartbeat};
  ASSERT_TRUE(ranks[0].link(1).send(0, beat, {}));
  const FakeTraffic traffic = ranks.network.traffic(0, 1);
  EXPECT_EQ(traffic.frames, 3U);
  EXPECT_EQ(traffic.payload_bytes, 30U);
  EXPECT_EQ(traffic.of(FrameKind::kSegment), 2U);
  EXPECT_EQ(traffic.of(FrameKind::kHeartbeat), 1U);
  EXPECT_EQ(ranks.network.traffic(1, 0).frames, 0U);
  EXPECT_EQ(ranks.network.traffic(0, 2).frames, 0U);
}

TEST(Fake, CarriesTwoHundredAndFiftySixRanksAtFiftyMicroseconds) {
  constexpr std::uint32_t kRanks = 256;
  constexpr std::size_t kRounds = 10;
  FakeWorld ranks(kRanks, {.delay = 50us});
  ranks.world.run_threads([&](std::uint32_t rank) {
    TransportRank& self = ranks[rank];
    for (std::size_t round = 0; round < kRounds; ++round) {
      ASSERT_TRUE(self.try_send((rank + 1) % kRanks, 1, 1000));
      ASSERT_TRUE(self.drive_until([&] { return self.sink.num_received > round; }));
    }
  });
  ranks.world.expect_equal();
}

}  // namespace
}  // namespace slipstream::test
