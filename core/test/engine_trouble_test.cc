#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "engine/completion.h"
#include "engine_world.h"
#include "gate/gated_ring.h"
#include "tcp_world.h"

// Tests of ranks that are out of step, that are gone, or that come back: nothing hangs, and nothing
// touches memory that belongs to the caller again.
namespace slipstream::test {
namespace {

constexpr std::uint64_t kLarge = 200'000;  // elements, far more than are sent unasked

Request message(Collective collective, std::vector<float>& data, std::uint32_t peer) {
  Request request;
  request.collective = collective;
  request.input = request.output = data.data();
  request.dtype = DType::kFloat32;
  request.count = data.size();
  request.root = peer;
  return request;
}

Request send(std::vector<float>& data, std::uint32_t to) {
  return message(Collective::kSend, data, to);
}
Request receive(std::vector<float>& data, std::uint32_t from) {
  return message(Collective::kReceive, data, from);
}
Request allreduce(std::vector<float>& data) { return message(Collective::kAllreduce, data, 0); }

TEST(Trouble, TwoRanksSendEachOtherLargeMessagesAtOnce) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    const std::uint32_t peer = 1 - self.rank;
    for (int round = 0; round < 20; ++round) {
      std::vector<float> out(kLarge, static_cast<float>(self.rank)), in(kLarge);
      const auto sent = self.engine->submit(self.world, send(out, peer));
      if (self.rank == 1) self.finish(*sent);  // its own receive comes after
      self.run(receive(in, peer));
      self.finish(*sent);
      ASSERT_EQ(in, std::vector<float>(kLarge, static_cast<float>(peer)));
    }
  });
}

/// A stopped rank is given up although its connections are open; then it continues.
TEST(Trouble, ARankThatWakesUpTouchesNothingThatWasGivenBack) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    FakeOptions network;
    network.copies_payload = false;
    network.split_probability = 1;
    network.capacity_frames = 4;
    network.bytes_per_second = 2e6;
    network.seed = seed;
    EngineOptions options;
    options.segment_bytes = 4096;
    options.eager_bytes = 256;
    options.peer_timeout = 300ms;
    EngineWorld world(3, network, options);
    world.each([&](EngineRank& self) {
      auto data = std::make_unique<std::vector<float>>(kLarge, 1.0F);
      const auto pending = self.engine->submit(self.world, allreduce(*data));
      if (self.rank == 2) {
        while (world.network().traffic(1, 2).payload_bytes < 50'000) std::this_thread::yield();
        for (const std::uint32_t peer : {0U, 1U}) {
          world.network().freeze_link(2, peer, 700ms);
          world.network().freeze_link(peer, 2, 700ms);
        }
      }
      EXPECT_NE(error_of([&] { self.finish(*pending); }), "");
      data.reset();                        // nothing may touch it any more; ASAN checks
      std::this_thread::sleep_for(600ms);  // by then the links have thawed
    });
  }
}

/// A segment that is half received on a dying stream is repeated on another. The sum that is
/// computed in its place must not be overwritten by the rest of the first copy.
TEST(Trouble, SegmentsThatComeTwiceAreAddedOnce) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    FakeOptions network;
    network.copies_payload = false;
    network.num_streams = 4;
    network.capacity_frames = 8;
    network.jitter = 400us;
    network.split_probability = 1;
    network.seed = seed;
    network.schedule.random.lose_stream_late = 0.03;
    EngineOptions options;
    options.segment_bytes = 1024;
    options.eager_bytes = 256;
    EngineWorld world(3, network, options);
    world.each([](EngineRank& self) {
      std::mt19937 random(1);
      for (int round = 0; round < 15; ++round) {
        const std::size_t count = 1000 + random() % 1000;
        std::vector<float> input(3 * count), sum(count);
        for (std::size_t i = 0; i < input.size(); ++i) {
          input[i] = static_cast<float>((i + self.rank) % 17);
        }
        Request request = message(Collective::kReduceScatter, input, 0);
        request.output = sum.data();
        request.count = count;
        request.algorithm = Algorithm::kDirect;
        self.run(std::move(request));
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t at = self.rank * count + i;
          const std::size_t expected = at % 17 + (at + 1) % 17 + (at + 2) % 17;
          ASSERT_EQ(sum[i], static_cast<float>(expected)) << "element " << i;
        }
      }
    });
  }
}

TEST(Trouble, ALargeMessageToARankThatClosesTheGroupFails) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    for (const bool asks_first : {true, false}) {
      const auto group = self.engine->make_group("g", {0, 1});
      std::vector<float> data(kLarge), small(10);
      for (int i = 0; i < 5; ++i) self.run(group, allreduce(small));
      if (self.rank == 1) {
        // Either the request waits here when the group closes, or it arrives afterwards.
        if (asks_first) self.run(self.world, receive(small, 0));
        self.engine->close_group(*group);
        if (!asks_first) self.run(self.world, send(small, 0));
        continue;
      }
      if (!asks_first) self.run(self.world, receive(small, 1));
      const auto pending = self.engine->submit(group, send(data, 1));
      if (asks_first) self.run(self.world, send(small, 1));
      const std::string error = error_of([&] { self.finish(*pending); });
      EXPECT_NE(error.find("closed"), std::string::npos) << error;
      self.engine->close_group(*group);
    }
  });
}

/// Operations that the closing rank has finished end normally on the others, whatever it leaves
/// unfinished.
TEST(Trouble, ClosingWithAnOperationInFlightSparesThoseBeforeIt) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    const auto group = self.engine->make_group("g", {0, 1});
    std::vector<float> data(100, static_cast<float>(self.rank)), sum(100);
    if (self.rank == 0) {
      self.run(group, message(Collective::kBroadcast, data, 0));
      const auto pending = self.engine->submit(group, allreduce(sum));
      self.engine->close_group(*group);
      EXPECT_NE(error_of([&] { self.finish(*pending); }), "");
      self.run(self.world, send(sum, 1));
    } else {
      self.run(self.world, receive(sum, 0));
      self.run(group, message(Collective::kBroadcast, data, 0));
      EXPECT_EQ(data, std::vector<float>(100, 0));
      const std::string error = error_of([&] { self.run(group, allreduce(sum)); });
      EXPECT_NE(error.find("rank 0 closed group 'g'"), std::string::npos) << error;
      self.engine->close_group(*group);
    }
  });
}

/// One thread submits until another closes the engine. No operation may be left over, even if the
/// other rank is gone, so that there is nothing to do before the end.
TEST(Trouble, WhatWasSubmittedJustBeforeClosingFails) {
  for (int turn = 0; turn < 100; ++turn) {
    EngineWorld world(2);
    std::vector<float> data(10);
    if (turn % 2 == 1) {
      world.network().kill_rank(1);
      EXPECT_NE(error_of([&] { world[0].run(allreduce(data)); }), "");
    }
    std::vector<std::shared_ptr<Completion>> pending;
    std::atomic<bool> begun = false;
    std::thread submits([&] {
      const std::string refused = error_of([&] {
        while (true) {
          pending.push_back(world[0].engine->submit(world[0].world, allreduce(data)));
          begun = true;
        }
      });
      EXPECT_NE(refused.find("is closed; initialise Slipstream again"), std::string::npos)
          << refused;
    });
    while (!begun) std::this_thread::yield();
    world[0].engine->close();
    submits.join();
    for (const auto& each : pending) {
      ASSERT_TRUE(each->done());
      ASSERT_TRUE(each->error());
    }
  }
}

TEST(Trouble, AReceiveFromARankThatAskedAndLeftFails) {
  EngineWorld world(2);
  std::atomic<bool> has_left{false};
  world.each([&](EngineRank& self) {
    std::vector<float> data(kLarge), small(1);
    if (self.rank == 0) {
      const auto pending = self.engine->submit(self.world, send(data, 1));
      self.run(send(small, 1));
      self.engine->close();
      EXPECT_NE(error_of([&] { self.finish(*pending); }), "");
      has_left = true;
      return;
    }
    while (!has_left) std::this_thread::yield();
    EXPECT_NE(error_of([&] { self.run(receive(data, 0)); }), "");
  });
}

TEST(Trouble, CountsThatDoNotFitAreAMismatch) {
  // {elements that rank 0 sends to rank 1, elements that rank 1 expects}: large or small on either
  // side.
  for (const auto& [sent, expected] : {std::pair{90'000U, 80'000U},
                                       {90'000U, 10U},
                                       {10U, 90'000U},
                                       {90'000U, 0U},
                                       {0U, 90'000U}}) {
    EngineWorld world(2);
    world.each([&](EngineRank& self) {
      Request request;
      request.collective = Collective::kAllToAll;
      request.dtype = DType::kUInt8;
      request.send_counts = self.rank == 0 ? std::vector<std::uint64_t>{5, sent}
                                           : std::vector<std::uint64_t>{100'000, 7};
      request.receive_counts = self.rank == 0 ? std::vector<std::uint64_t>{5, 100'000}
                                              : std::vector<std::uint64_t>{expected, 7};
      std::vector<unsigned char> in(200'000), out(200'000);
      request.input = in.data();
      request.output = out.data();
      const std::string error = error_of([&] {
        self.run(request);
        std::vector<float> data(10);
        self.run(allreduce(data));
      });
      EXPECT_NE(error.find("disagree about operation 0 (counted from 0)"), std::string::npos)
          << sent << " sent, " << expected << " expected: " << error;
    });
  }
}

// ThreadSanitizer saw the text read by one thread and deleted by another (CI, November 2026).
TEST(Trouble, AnyThreadMayBeTheLastToDropAnError) {
  const std::string text = "a message that is long enough for the heap";
  for (int round = 0; round < 500; ++round) {
    auto completion = std::make_shared<Completion>();
    std::vector<std::thread> waiters;
    for (int i = 0; i < 2; ++i) {
      waiters.emplace_back([mine = completion, &text]() mutable {
        mine->wait(Clock::now() + std::chrono::seconds(30));
        const Error thrown = *mine->error();
        mine.reset();
        EXPECT_EQ(thrown.what(), text);
      });
    }
    completion->finish(Error(ErrorKind::kPeer, text));
    completion.reset();
    for (std::thread& waiter : waiters) waiter.join();
  }
}

TEST(Trouble, InputAndOutputMayNotOverlapWhereBothAreNeeded) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    std::vector<float> data(2 * kLarge, static_cast<float>(self.rank + 1));
    for (const Collective collective :
         {Collective::kAllToAll, Collective::kAllGather, Collective::kReduceScatter}) {
      Request request = message(collective, data, 0);
      request.count = kLarge;
      request.output = data.data() + 10;
      EXPECT_NE(error_of([&] { self.run(request); }).find("overlap"), std::string::npos);
    }
    Request own = message(Collective::kReduceScatter, data, 0);
    own.count = kLarge;
    own.output = data.data() + self.rank * kLarge;
    self.run(own);
    const auto* sum = static_cast<const float*>(own.output);
    EXPECT_EQ(std::vector<float>(sum, sum + kLarge), std::vector<float>(kLarge, 3.0F));
  });
}

/// The data that are sent unasked are limited: a root that is far ahead waits.
TEST(Trouble, ARootThatIsAheadWaitsWhenThePoolIsFull) {
  constexpr int kRounds = 2000;
  EngineOptions options;
  options.eager_pool_bytes = 16 * 1024;
  EngineWorld world(2, FakeOptions{}, options);
  std::atomic<bool> has_looked{false};
  world.each([&](EngineRank& self) {
    std::vector<std::vector<float>> data(kRounds, std::vector<float>(100));
    std::vector<std::shared_ptr<Completion>> pending;
    if (self.rank == 1) {
      while (!has_looked) std::this_thread::yield();
    }
    for (int round = 0; round < kRounds; ++round) {
      auto& each = data[static_cast<std::size_t>(round)];
      if (self.rank == 0) each.assign(100, static_cast<float>(round));
      Request request = message(Collective::kBroadcast, each, 0);
      pending.push_back(self.engine->submit(self.world, std::move(request)));
    }
    if (self.rank == 0) {
      EXPECT_TRUE(self.engine->wait(*pending.front(), Clock::now() + 10s));
      EXPECT_FALSE(self.engine->wait(*pending.back(), Clock::now() + 200ms));
      has_looked = true;
    }
    for (const auto& each : pending) self.finish(*each);
    ASSERT_EQ(data.back(), std::vector<float>(100, kRounds - 1));
  });
}

TEST(Trouble, AGroupThatIsMadeFarTooLateFailsOnAllMembers) {
  EngineWorld world(2);
  std::atomic<bool> is_ahead{false};
  world.each([&](EngineRank& self) {
    Request barrier;
    barrier.collective = Collective::kBarrier;
    if (self.rank == 1) {
      while (!is_ahead) std::this_thread::yield();
      const auto group = self.engine->make_group("late", {0, 1});
      EXPECT_NE(error_of([&] { self.run(group, barrier); }).find("too late"), std::string::npos);
      return;
    }
    const auto group = self.engine->make_group("late", {0, 1});
    std::vector<std::shared_ptr<Completion>> pending;
    for (int i = 0; i < 70'000; ++i) pending.push_back(self.engine->submit(group, barrier));
    const std::string error = error_of([&] { self.finish(*pending.back()); });
    EXPECT_NE(error.find("did not create it in time"), std::string::npos) << error;
    is_ahead = true;
  });
}

TEST(Trouble, StreamsThatCloseTogetherWithTheirPeerAreNotReportedLost) {
  for (int round = 0; round < 10; ++round) {
    TcpOptions options;
    options.num_streams = 8;
    EngineWorld world(2, tcp_family("tcp", options));
    Request barrier;
    barrier.collective = Collective::kBarrier;
    world.each([&](EngineRank& self) { self.run(barrier); });
    world[1].engine->close();
    EXPECT_NE(error_of([&] { world[0].run(barrier); }).find("has left"), std::string::npos);
    world[0].engine->close();
    for (const std::string& line : world[0].logged()) {
      EXPECT_EQ(line.find("lost stream"), std::string::npos) << line;
    }
  }
}

/// A ring without a device, which a test fills.
class LooseRing {
 public:
  [[nodiscard]] GatedRing& ring() { return ring_; }
  /// An allreduce of `count` floats in a slot that is not filled yet.
  Request allreduce_in_slot(std::uint64_t count) {
    Request request{.collective = Collective::kAllreduce, .dtype = DType::kFloat32, .count = count};
    request.input = request.output = ring_.slot(1).data();
    request.ring = &ring_;
    request.chunk = 1;
    return request;
  }
  void fill_slot() { ring_.gate(1).in.value.store(1, std::memory_order_release); }

 private:
  static constexpr RingShape kShape{.num_slots = 2, .slot_bytes = 4096};
  std::vector<std::byte> memory_{GatedRing::bytes_for(kShape) + 4096};
  GatedRing ring_{page_of(memory_), kShape};

  static std::span<std::byte> page_of(std::vector<std::byte>& memory) {
    void* place = memory.data();
    std::size_t left = memory.size();
    std::align(4096, GatedRing::bytes_for(kShape), place, left);
    return {static_cast<std::byte*>(place), left};
  }
};

TEST(Trouble, OperationsBehindAnErrorOfTheEngineEndToo) {
  LooseRing loose;
  EngineWorld world(2);
  EngineRank& self = world[0];
  std::vector<float> small(4);
  const auto failing = self.engine->submit(self.world, loose.allreduce_in_slot(4));
  const auto behind = self.engine->submit(self.world, allreduce(small));
  world.network().fail_next_send(0);
  loose.fill_slot();
  for (const auto& each : {failing, behind}) {
    ASSERT_TRUE(self.engine->wait(*each, Clock::now() + kPatience));
    ASSERT_TRUE(each->error());
    EXPECT_NE(std::string(each->error()->what()).find("was told to"), std::string::npos);
  }
}

TEST(Trouble, AFailureEndsCallsThatWaitBehindADevice) {
  LooseRing loose;
  EngineWorld world(2);
  EngineRank& self = world[0];
  std::vector<float> small(4);
  const auto gated = self.engine->submit(self.world, loose.allreduce_in_slot(4));
  const auto behind = self.engine->submit(self.world, allreduce(small));
  world[1].engine->abort_group(*world[1].world, "a test");
  ASSERT_TRUE(self.engine->wait(*behind, Clock::now() + kPatience)) << "its device may have failed";
  EXPECT_NE(std::string(behind->error()->what()).find("rank 1 aborted"), std::string::npos);
  EXPECT_FALSE(gated->done()) << "the device may still write into the slot";
  loose.fill_slot();
  ASSERT_TRUE(self.engine->wait(*gated, Clock::now() + kPatience));
}

TEST(Trouble, AGroupWithoutOperationsFailsToo) {
  EngineWorld world(2);
  EXPECT_FALSE(world[0].engine->failure_of(*world[0].world));
  world[1].engine->abort_group(*world[1].world, "a test");
  const TimePoint limit = Clock::now() + kPatience;
  while (!world[0].engine->failure_of(*world[0].world) && Clock::now() < limit) {
    std::this_thread::sleep_for(1ms);
  }
  const auto failure = world[0].engine->failure_of(*world[0].world);
  ASSERT_TRUE(failure);
  EXPECT_NE(std::string(failure->what()).find("rank 1 aborted"), std::string::npos);
}

/// Rank 0 waits for rank 2 only, whose operation fails before or after it has sent the block.
TEST(Trouble, AllMembersAreToldThatOneHasLeft) {
  for (int round = 0; round < 10; ++round) {
    EngineWorld world(3);
    world.each([](EngineRank& self) {
      if (self.rank == 1) return self.engine->close();
      std::vector<float> blocks(3 * kLarge), block(kLarge);
      Request request = message(Collective::kScatter, blocks, 2);
      request.output = block.data();
      request.count = kLarge;
      const std::string error = error_of([&] { self.run(request); });  // does not hang
      const bool is_told = error.find("rank 1") != std::string::npos;
      EXPECT_TRUE(is_told || (self.rank == 0 && error.empty())) << error;
    });
  }
}

}  // namespace
}  // namespace slipstream::test
