#pragma once

// The promises of every transport (transport/transport.h), as tests. A transport adopts them with
//   INSTANTIATE_TEST_SUITE_P(Tcp, TransportContract, testing::Values(family));
// If a promise does not apply to a transport (placing, on shared memory), its test is skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "test/transport_world.h"

namespace slipstream::test {

class TransportContract : public testing::TestWithParam<TransportFamily> {};

constexpr std::uint32_t kManyBytes = 64 * 1024;

TEST_P(TransportContract, ConnectsEveryRankOnceAndDescribesTheLinks) {
  TransportWorld world(GetParam(), 3);
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    for (const auto& [peer, link] : world[rank].sink.links) {
      EXPECT_NE(peer, rank);
      EXPECT_EQ(link->num_streams(), world.num_streams());
      EXPECT_FALSE(link->describe().empty());
      for (std::uint32_t stream = 0; stream < link->num_streams(); ++stream) {
        EXPECT_TRUE(link->alive(stream));
        EXPECT_TRUE(link->ready(stream));
      }
    }
  }
  EXPECT_GE(world.num_streams(), 2U);
}

TEST_P(TransportContract, FramesOfEverySizeArriveUnchangedAndInOrder) {
  TransportWorld world(GetParam(), 2);
  for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
    const std::uint32_t most = world.max_payload(stream);
    for (const std::uint32_t bytes : {0U, 1U, 7U, 63U, 64U, 65U, 4096U, 8191U, 99'999U}) {
      world.send(0, 1, stream, bytes);
    }
    for (const std::uint32_t bytes : {most - 1, most, 0U, most}) world.send(0, 1, stream, bytes);
  }
  world.expect_delivered();
}

TEST_P(TransportContract, CarriesBothDirectionsOfAllStreamsAtOnce) {
  TransportWorld world(GetParam(), 2);
  for (std::uint32_t round = 0; round < 50; ++round) {
    for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
      world.send(0, 1, stream, round * 997);
      world.send(1, 0, stream, kManyBytes - round * 1009);
    }
  }
  world.expect_delivered();
}

TEST_P(TransportContract, DeliversRandomTrafficOfThreeRanks) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    TransportWorld world(GetParam(), 3);
    std::mt19937 random(seed);
    for (int count = 0; count < 300; ++count) {
      const std::uint32_t from = static_cast<std::uint32_t>(random() % 3);
      const std::uint32_t to = static_cast<std::uint32_t>((from + 1 + random() % 2) % 3);
      const std::uint32_t stream = static_cast<std::uint32_t>(random() % world.num_streams());
      const std::uint32_t magnitude = 1U << random() % 19;
      const auto bytes = static_cast<std::uint32_t>(random() % magnitude);
      world.send(from, to, stream, bytes);
      if (random() % 4 == 0) world.poll();
    }
    world.expect_delivered();
  }
}

TEST_P(TransportContract, RefusesFramesWhenThePeerDoesNotPollAndLosesNone) {
  for (const std::uint32_t bytes : {0U, 333U, kManyBytes}) {
    TransportWorld world(GetParam(), 2);
    for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
      const std::size_t num_sent = world.fill(0, 1, stream, bytes);
      EXPECT_GT(num_sent, 0U);
      EXPECT_FALSE(world[0].link(1).ready(stream));
      EXPECT_EQ(world[1].sink.num_received, 0U);
    }
    for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
      EXPECT_TRUE(world.poll_until([&] { return world[0].link(1).ready(stream); }));
      world.send(0, 1, stream, 1);
    }
    world.expect_delivered();
  }
}

TEST_P(TransportContract, AFullStreamLeavesTheOthersFree) {
  TransportWorld world(GetParam(), 2);
  world.fill(0, 1, 1, kManyBytes);
  EXPECT_TRUE(world[0].link(1).ready(0));
  EXPECT_TRUE(world[0].try_send(1, 0, 100));
  world.fill(1, 0, 0, 100);
  EXPECT_TRUE(world[1].link(0).ready(1));
  EXPECT_TRUE(world[1].try_send(0, 1, 100));
  world.expect_delivered();
}

TEST_P(TransportContract, PayloadArrivesWhereItWasPlaced) {
  TransportWorld world(GetParam(), 2);
  RecordingSink& sink = world[1].sink;
  std::vector<std::unique_ptr<std::byte[]>> places;
  std::byte* expected = nullptr;
  sink.on_place = [&](std::uint32_t, const Frame& frame) {
    if (frame.length % 2 == 0) return expected = nullptr;  // in the transport's own memory
    places.push_back(std::make_unique<std::byte[]>(frame.length));
    return expected = places.back().get();
  };
  sink.on_arrived = [&](std::uint32_t, std::uint32_t, const Frame& frame, const auto& payload) {
    const bool as_placed = expected == nullptr || payload.data() == expected;
    EXPECT_TRUE(as_placed) << frame.length << " bytes are elsewhere";
    expected = nullptr;
  };
  std::size_t num_payloads = 0;
  for (const std::uint32_t bytes : {1U, 2U, 4095U, 4096U, 0U, 99'999U, 100'000U, 5U}) {
    world.send(0, 1, 1, bytes);
    num_payloads += bytes > 0 ? 1 : 0;
    world.expect_delivered();
  }
  if (world[0].link(1).copies_payload() && sink.num_placed == 0) {
    GTEST_SKIP() << "the payload is in memory already";
  }
  EXPECT_EQ(sink.num_placed, num_payloads);
  EXPECT_GT(places.size(), 0U);
}

TEST_P(TransportContract, TheSinkMaySendAndForgetWhilePayloadArrives) {
  TransportWorld world(GetParam(), 2);
  const std::uint32_t bytes = 3000;
  RecordingSink& sink = world[1].sink;
  sink.on_arrived = [&](std::uint32_t peer, std::uint32_t stream, const Frame&,
                        std::span<const std::byte> payload) {
    const std::vector<std::byte> before(payload.begin(), payload.end());
    if (world[1].link(peer).ready(stream)) world[1].try_send(peer, stream, bytes);
    world[1].link(peer).forget(before);
    EXPECT_TRUE(std::ranges::equal(before, payload)) << "payload changed while it was valid";
  };
  for (int round = 0; round < 100; ++round) world.send(0, 1, 1, bytes);
  world.expect_delivered();
  EXPECT_GT(world.num_sent_to(0), 0U);
}

TEST_P(TransportContract, ForgottenMemoryMayBeReusedWhileItsFramesAreHeldBack) {
  TransportWorld world(GetParam(), 2);
  const std::uint32_t bytes = std::min(kManyBytes, world.max_payload(1));
  std::vector<Message> sent;
  std::vector<std::unique_ptr<std::vector<std::byte>>> sources;
  Link& link = world[0].link(1);
  for (int idle_polls = 0; idle_polls < 64;) {
    Message message = make_message(0, 1, 1, sent.size(), bytes);
    auto source = std::make_unique<std::vector<std::byte>>(message.payload);
    if (link.send(1, message.frame, *source)) {
      sent.push_back(std::move(message));
      sources.push_back(std::move(source));
      idle_polls = 0;
    } else if (!world[0].poll()) {
      ++idle_polls;
    }
  }
  // The odd messages, of which only a part is forgotten; the even ones stay until all have arrived.
  for (std::size_t index = 1; index < sources.size(); index += 2) {
    link.forget(std::span(*sources[index]).last(1));
    std::ranges::fill(*sources[index], std::byte{0xee});
    sources[index].reset();
  }
  EXPECT_TRUE(world.poll_until([&] { return world[1].sink.num_received >= sent.size(); }));
  EXPECT_TRUE((world[1].sink.received[{0, 1}] == sent));
}

// The engine acknowledges segments by counting the calls of arrived() for each stream. A frame
// whose payload is discarded must be counted too, or all later counts are wrong.
TEST_P(TransportContract, ForgottenPlacesAreNotWrittenAndTheFrameIsStillCounted) {
  TransportWorld world(GetParam(), 2);
  RecordingSink& sink = world[1].sink;
  std::vector<std::unique_ptr<std::byte[]>> places;
  sink.on_place = [&](std::uint32_t, const Frame& frame) {
    places.push_back(std::make_unique<std::byte[]>(frame.length));
    return places.back().get();
  };
  const std::uint32_t bytes = world.max_payload(1) - 1;
  const std::size_t num_sent = world.fill(0, 1, 1, bytes);
  // Until a payload stops half-way, because of the kernel's buffers or the fake's splits.
  const bool stopped = world.poll_until(
      [&] { return sink.num_placed > sink.num_received || sink.num_received >= num_sent; });
  ASSERT_TRUE(stopped);
  if (sink.num_placed == sink.num_received || sink.num_placed == 0) {
    GTEST_SKIP() << "no payload arrives in two parts";
  }
  const std::size_t unfinished = sink.num_received;
  world[1].link(0).forget(std::span(places.back().get(), bytes));
  places.back().reset();
  EXPECT_TRUE(world.poll_until([&] { return sink.num_received >= num_sent; }));
  const std::vector<Message>& received = sink.received[{0, 1}];
  const std::vector<Message>& sent = world[0].sent[{1, 1}];
  ASSERT_EQ(received.size(), sent.size());
  for (std::size_t index = 0; index < sent.size(); ++index) {
    EXPECT_EQ(received[index].frame.sequence, sent[index].frame.sequence);
    EXPECT_TRUE(index == unfinished || received[index] == sent[index]) << index;
  }
}

TEST_P(TransportContract, ClosingLosesEveryStreamOnceAfterWhatWasDelivered) {
  TransportWorld world(GetParam(), 3);
  for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
    for (std::uint32_t bytes = 0; bytes < 20; ++bytes) world.send(0, 1, stream, bytes * 100);
  }
  world.expect_delivered();
  world[0].transport->close();
  world[0].transport->close();
  for (const auto& [peer, link] : world[0].sink.links) {
    for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
      EXPECT_FALSE(link->alive(stream));
      EXPECT_FALSE(link->send(stream, Frame{.kind = FrameKind::kHeartbeat}, {}));
    }
  }
  const auto lost_all = [&](std::uint32_t rank) {
    return world[rank].sink.lost.size() == world.num_streams();
  };
  EXPECT_TRUE(world.poll_until([&] { return lost_all(1) && lost_all(2); }));
  for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
    EXPECT_FALSE(world[1].link(0).ready(stream));
    EXPECT_FALSE(world[1].link(0).send(stream, Frame{.kind = FrameKind::kHeartbeat}, {}));
    EXPECT_TRUE(world[1].link(2).alive(stream));
    world.send(1, 2, stream, 100);
  }
  world.expect_delivered();
  EXPECT_TRUE(lost_all(1) && lost_all(2)) << "a stream was lost twice, or one too many";
}

TEST_P(TransportContract, WhatArrivesBeforeASuddenCloseIsWholeAndInOrder) {
  TransportWorld world(GetParam(), 2);
  for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
    world.fill(0, 1, stream, 10'001);
    world[1].try_send(0, stream, 10);  // not read at the end that closes
  }
  world[0].transport.reset();
  const auto lost_all = [&] { return world[1].sink.lost.size() == world.num_streams(); };
  EXPECT_TRUE(world[1].drive_until(lost_all));
  for (const auto& [lane, received] : world[1].sink.received) {
    const std::vector<Message>& sent = world[0].sent[{1, lane.second}];
    ASSERT_LE(received.size(), sent.size());
    EXPECT_TRUE(std::equal(received.begin(), received.end(), sent.begin()));
  }
}

TEST_P(TransportContract, FiveRanksExchangeWithAllOthersOnTheirOwnThreads) {
  TransportWorld world(GetParam(), 5);
  constexpr std::uint32_t kRounds = 40;
  const std::size_t expected = kRounds * world.num_streams() * (world.size() - 1);
  world.run_threads([&](std::uint32_t rank) {
    TransportRank& self = world[rank];
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      for (std::uint32_t step = 1; step < world.size(); ++step) {
        const std::uint32_t peer = (rank + step) % world.size();
        for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
          ASSERT_TRUE(self.drive_until([&] { return self.link(peer).ready(stream); }));
          self.try_send(peer, stream, round * 301 + stream);
        }
      }
    }
    EXPECT_TRUE(self.drive_until([&] { return self.sink.num_received == expected; }));
  });
  world.expect_delivered();
}

TEST_P(TransportContract, PollReturnsFalseWhenNothingHappens) {
  TransportWorld world(GetParam(), 3);
  world.send(0, 1, 1, 1000);
  world.expect_delivered();
  int idle_polls = 0;
  EXPECT_TRUE(world.poll_until([&] {
    idle_polls = world.poll() ? 0 : idle_polls + 1;
    return idle_polls == 100;
  }));
}

TEST_P(TransportContract, ASleepingRankIsWokenByAFrame) {
  TransportWorld world(GetParam(), 2);
  constexpr std::size_t kRounds = 300;
  world.run_threads([&](std::uint32_t rank) {
    TransportRank& self = world[rank];
    const std::uint32_t peer = 1 - rank;
    for (std::size_t round = 0; round < kRounds; ++round) {
      const auto stream = static_cast<std::uint32_t>(round % world.num_streams());
      ASSERT_TRUE(rank == 1 || self.try_send(peer, stream, 64));
      ASSERT_TRUE(self.drive_until([&] { return self.sink.num_received > round; }));
      ASSERT_TRUE(rank == 0 || self.try_send(peer, stream, 64));
    }
  });
  world.expect_delivered();
}

TEST_P(TransportContract, ASleepingRankIsWokenWhenAFullStreamTakesFramesAgain) {
  TransportWorld world(GetParam(), 2);
  constexpr std::size_t kFrames = 400;
  world.run_threads([&](std::uint32_t rank) {
    TransportRank& self = world[rank];
    if (rank == 1) {
      EXPECT_TRUE(self.drive_until([&] { return self.sink.num_received == kFrames; }));
      return;
    }
    for (std::size_t count = 0; count < kFrames; ++count) {
      ASSERT_TRUE(self.drive_until([&] { return self.link(1).ready(1); }));
      ASSERT_TRUE(self.try_send(1, 1, kManyBytes));
    }
  });
}

TEST_P(TransportContract, ASleepingRankIsWokenWhenThePeerCloses) {
  TransportWorld world(GetParam(), 2);
  std::atomic<bool> ended{false};
  world.run_threads([&](std::uint32_t rank) {
    TransportRank& self = world[rank];
    if (rank == 0) {
      ASSERT_TRUE(self.drive_until([&] { return self.sink.num_received == 1; }));
      while (!world[1].asleep && !ended) std::this_thread::yield();
      self.transport->close();
      ended.wait(false);  // or the end of this body would wake the other rank
    } else {
      ASSERT_TRUE(self.try_send(0, 1, 1));
      EXPECT_TRUE(self.drive_until([&] { return self.sink.lost.size() == world.num_streams(); }));
      ended = true;
      ended.notify_all();
    }
  });
}

TEST_P(TransportContract, LeavesNoDescriptorOpen) {
  {
    const TransportWorld first(GetParam(), 2);
  }  // objects that are created once for the process
  const std::size_t before = count_descriptors();
  for (int round = 0; round < 10; ++round) {
    TransportWorld world(GetParam(), 3);
    world.send(0, 1, 0, 100);
    world.fill(1, 2, 1, kManyBytes);
    if (round % 2 == 0) world[1].transport->close();
  }
  EXPECT_EQ(count_descriptors(), before);
}

}  // namespace slipstream::test
