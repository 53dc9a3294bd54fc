#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include "engine_world.h"

// Tests of the engine over the fake transport: collectives against plain arithmetic, several at the
// same time, and failures.
namespace slipstream::test {
namespace {

Request allreduce(std::vector<float>& data, std::string name = "t") {
  Request request;
  request.collective = Collective::kAllreduce;
  request.input = request.output = data.data();
  request.dtype = DType::kFloat32;
  request.count = data.size();
  request.name = std::move(name);
  return request;
}

struct Case {
  std::uint32_t ranks;
  std::uint64_t count;
  Algorithm algorithm;
  bool copies;
};

class Allreduce : public testing::TestWithParam<Case> {};

TEST_P(Allreduce, SumsOnEveryRank) {
  const Case& c = GetParam();
  FakeOptions network;
  network.copies_payload = c.copies;
  EngineOptions options;
  options.segment_bytes = 4096;
  options.eager_bytes = 1024;
  EngineWorld world(c.ranks, network, options);
  world.each([&](EngineRank& self) {
    std::vector<float> data(c.count);
    for (std::uint64_t i = 0; i < c.count; ++i) {
      data[i] = static_cast<float>((i + 1) * (self.rank + 1) % 97);
    }
    Request request = allreduce(data);
    request.algorithm = c.algorithm;
    self.run(std::move(request));
    for (std::uint64_t i = 0; i < c.count; ++i) {
      float expected = 0;
      for (std::uint32_t rank = 0; rank < c.ranks; ++rank) {
        expected += static_cast<float>((i + 1) * (rank + 1) % 97);
      }
      ASSERT_EQ(data[i], expected) << "rank " << self.rank << " element " << i;
    }
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 5U, 7U, 8U}) {
    for (const std::uint64_t count : {0UL, 1UL, 255UL, 5000UL}) {
      for (const Algorithm algorithm :
           {Algorithm::kRing, Algorithm::kRecursiveDoubling, Algorithm::kDirect}) {
        for (const bool copies : {true, false}) all.push_back({ranks, count, algorithm, copies});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Allreduce, testing::ValuesIn(cases()), [](const auto& tested) {
  const Case& c = tested.param;
  return concat(name_of(c.algorithm), "_", c.ranks, "_ranks_", c.count,
                c.copies ? "_copied" : "_kept");
});

TEST(Engine, RunsManyOperationsAtOnce) {
  EngineWorld world(4);
  world.each([](EngineRank& self) {
    std::vector<std::vector<float>> data(50, std::vector<float>(20000, 1.0F));
    std::vector<std::shared_ptr<Completion>> pending;
    for (auto& each : data) pending.push_back(self.engine->submit(self.world, allreduce(each)));
    for (const auto& each : pending) self.finish(*each);
    for (const auto& each : data) ASSERT_EQ(each.back(), 4.0F);
  });
}

TEST(Engine, GroupsInOppositeOrdersDoNotBlockEachOther) {
  FakeOptions network;
  network.capacity_frames = 1;
  EngineOptions options;
  options.segment_bytes = 1024;
  options.eager_bytes = 256;
  options.eager_pool_bytes = 512;
  EngineWorld world(3, network, options);
  world.each([](EngineRank& self) {
    auto a = self.engine->make_group("a", {0, 1, 2});
    auto b = self.engine->make_group("b", {0, 1, 2});
    for (const std::uint64_t count : {40UL, 5000UL}) {
      std::vector<float> x(count, 1.0F), y(count, 2.0F);
      for (int round = 0; round < 20; ++round) {
        auto& first = self.rank == 1 ? b : a;
        auto& second = self.rank == 1 ? a : b;
        auto one = self.engine->submit(first, allreduce(self.rank == 1 ? y : x));
        auto two = self.engine->submit(second, allreduce(self.rank == 1 ? x : y));
        self.finish(*one);
        self.finish(*two);
      }
      ASSERT_EQ(x[0], 3486784401.0F);
    }
  });
}

TEST(Engine, MismatchNamesWhatEachRankPassed) {
  EngineWorld world(3);
  world.each([](EngineRank& self) {
    std::vector<float> data(self.rank == 1 ? 2000 : 1000);
    const std::string message = error_of([&] { self.run(allreduce(data, "grad.3")); });
    EXPECT_NE(message.find("rank 0: allreduce sum float32 x 1000"), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1: allreduce sum float32 x 2000"), std::string::npos) << message;
    EXPECT_NE(message.find("grad.3"), std::string::npos) << message;
  });
}

TEST(Engine, ATunedGroupSwitchesBetweenTwoOperations) {
  EngineOptions options;
  options.segment_bytes = 16384;
  options.eager_bytes = 1024;
  EngineWorld world(3, FakeOptions{}, options);
  world.each([](EngineRank& self) {
    const std::vector<AllreduceTuning> tunings{
        {4096, 8192, 4096}, {0, 1 << 20, 8192}, {1 << 20, 0, 0}, {0, 0, 4096}};
    for (const AllreduceTuning& tuning : tunings) {
      self.engine->tune_group(*self.world, tuning);
      for (const std::size_t count : {1000U, 2000U, 20'000U}) {
        std::vector<float> data(count, 1.0F);
        self.run(allreduce(data));
        ASSERT_EQ(std::count(data.begin(), data.end(), 3.0F), static_cast<std::ptrdiff_t>(count));
      }
    }
  });
}

TEST(Engine, RanksThatAreTunedDifferentlyAreToldSo) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    self.engine->tune_group(*self.world, {0, 0, self.rank == 0 ? 16384U : 32768U});
    std::vector<float> data(100'000);
    const std::string message = error_of([&] { self.run(allreduce(data)); });
    EXPECT_NE(message.find("by ring in segments of 16384"), std::string::npos) << message;
    EXPECT_NE(message.find("by ring in segments of 32768"), std::string::npos) << message;
  });
}

TEST(Engine, SegmentsThatDoNotFitTheTransportsAreRefused) {
  EngineWorld world(1);
  for (const std::uint32_t bytes : {100U, 8192U + 1, 1U << 30U}) {
    const std::string message =
        error_of([&] { world[0].engine->tune_group(*world[0].world, {0, 0, bytes}); });
    EXPECT_NE(message.find("allowed: multiples of 64"), std::string::npos) << message;
  }
}

TEST(Engine, WhatIsUrgentOvertakesWhatWasSubmittedBefore) {
  FakeOptions network;
  network.capacity_frames = 2;
  network.bytes_per_second = 4e6;
  EngineOptions options;
  options.segment_bytes = 8192;
  options.eager_bytes = 1024;
  EngineWorld world(2, network, options);
  world.each([](EngineRank& self) {
    std::vector<float> large(1'000'000, 1.0F), small(10'000, 1.0F);
    const auto later = self.engine->submit(self.world, allreduce(large));
    Request request = allreduce(small);
    request.priority = 1;
    const auto urgent = self.engine->submit(self.world, std::move(request));
    self.finish(*urgent);
    EXPECT_FALSE(later->done());
    self.finish(*later);
    EXPECT_EQ(small, std::vector<float>(10'000, 2.0F));
    EXPECT_EQ(large, std::vector<float>(1'000'000, 2.0F));
  });
}

/// The root of a small broadcast is done before anything arrives from the others.
TEST(Engine, DifferentRootsAreFoundOutByTheNextOperation) {
  for (const bool submits_late : {false, true}) {
    EngineWorld world(2);
    world.each([&](EngineRank& self) {
      if (submits_late && self.rank == 1) std::this_thread::sleep_for(50ms);
      std::vector<float> data(8);
      const std::string message = error_of([&] {
        Request request = allreduce(data, "weights");
        request.collective = Collective::kBroadcast;
        request.root = self.rank;
        self.run(std::move(request));
        self.run(allreduce(data));
      });
      EXPECT_NE(message.find("rank 0: broadcast float32 x 8 root 0"), std::string::npos) << message;
      EXPECT_NE(message.find("rank 1: broadcast float32 x 8 root 1"), std::string::npos) << message;
    });
  }
}

TEST(Engine, ARootIsARankOfTheGroup) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    std::vector<float> data(8);
    for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
      Request request = allreduce(data, "weights");
      request.collective = collective;
      for (const std::uint32_t root : {2U, 3U}) {
        request.root = root;
        const std::string message = error_of([&] { self.run(request); });
        EXPECT_NE(message.find("is not a rank of group"), std::string::npos) << message;
      }
      request.root = 1;
      self.run(std::move(request));
    }
  });
}

/// NCCL's in-place all-gather.
TEST(Engine, GathersInPlaceWhenTheInputIsThisRanksBlockOfTheOutput) {
  EngineWorld world(3);
  world.each([](EngineRank& self) {
    for (const std::uint64_t count : {7UL, 100000UL}) {
      std::vector<float> data(3 * count);
      std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(self.rank * count), count,
                  static_cast<float>(self.rank + 1));
      Request request;
      request.collective = Collective::kAllGather;
      request.input = data.data() + self.rank * count;
      request.output = data.data();
      request.dtype = DType::kFloat32;
      request.count = count;
      self.run(std::move(request));
      for (std::uint64_t i = 0; i < data.size(); ++i) {
        ASSERT_EQ(data[i], static_cast<float>(i / count + 1)) << "element " << i;
      }
    }
  });
}

TEST(Engine, WhoAsksLateIsToldThatAnOperationIsDone) {
  EngineWorld world(1);
  std::vector<float> data(8, 1.0F);
  const auto completion = world[0].engine->submit(world[0].world, allreduce(data));
  world[0].finish(*completion);
  const auto tokens = std::make_shared<TokenQueue>();
  completion->notify(tokens, 42);
  EXPECT_EQ(tokens->pop(Clock::now() + 10s), 42U);
}

TEST(Engine, DeadPeerFailsEveryOtherRank) {
  EngineWorld world(3);
  world.each([&](EngineRank& self) {
    if (self.rank == 2) {
      world.network().kill_rank(2);
      return;
    }
    std::vector<float> data(100000);
    const std::string message = error_of([&] { self.run(allreduce(data, "grad.3")); });
    EXPECT_NE(message.find("rank 2"), std::string::npos) << message;
  });
}

TEST(Engine, AGroupThatIsMadeAfterADeathFailsAtOnce) {
  for (const std::uint32_t dead : {0U, 2U}) {
    EngineWorld world(3);
    world.each([&](EngineRank& self) {
      if (self.rank == dead) {
        world.network().kill_rank(dead);
        return;
      }
      std::vector<float> data(100000);
      error_of([&] { self.run(allreduce(data)); });
      auto later = self.engine->make_group("later", {0, 1, 2});
      Request request = allreduce(data);
      request.timeout = 10s;
      const std::string message = error_of([&] { self.run(later, std::move(request)); });
      EXPECT_NE(message.find(concat("rank ", dead)), std::string::npos) << message;
      EXPECT_NE(message.find("is gone"), std::string::npos) << message;
    });
  }
}

TEST(Engine, StragglerTimesOutByName) {
  EngineWorld world(3);
  world.each([](EngineRank& self) {
    if (self.rank == 1) return;
    std::vector<float> data(100);
    Request request = allreduce(data, "late");
    request.timeout = 300ms;
    const std::string message = error_of([&] { self.run(std::move(request)); });
    EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
    EXPECT_NE(message.find("has not submitted"), std::string::npos) << message;
  });
}

TEST(Engine, StallReportedAgainNamesWhoHasSubmittedSince) {
  EngineOptions options;
  options.stall_after = 100ms;
  EngineWorld world(3, FakeOptions{}, options);
  std::atomic<std::uint32_t> latest = 0;  // the last rank that may submit
  world.each([&](EngineRank& self) {
    std::vector<float> data(100);
    while (latest < self.rank) std::this_thread::yield();
    const auto pending = self.engine->submit(self.world, allreduce(data, "late"));
    if (self.rank == 0) {
      self.wait_for(" s; nothing has changed since the last report");
      latest = 1;
      self.wait_for("; since the last report: rank 1 (");
      latest = 2;
    }
    self.finish(*pending);
  });
  EXPECT_EQ(world[0].wait_for("'late'").find("last report"), std::string::npos);
}

TEST(Engine, StallReportedAgainCountsWhatHasEndedSince) {
  EngineOptions options;
  options.stall_after = 100ms;
  EngineWorld world(2, FakeOptions{}, options);
  std::atomic<bool> is_reported = false;
  world.each([&](EngineRank& self) {
    std::vector<float> data(10), other(10);
    Request message;
    message.collective = self.rank == 0 ? Collective::kReceive : Collective::kSend;
    message.input = message.output = data.data();
    message.dtype = DType::kFloat32;
    message.count = data.size();
    message.root = 1 - self.rank;
    if (self.rank == 1) {
      self.run(allreduce(other, "other"));
      while (!is_reported) std::this_thread::yield();
      return self.run(std::move(message));
    }
    const auto pending = self.engine->submit(self.world, std::move(message));
    self.wait_for(" s; nothing has changed since the last report");
    self.run(allreduce(other, "other"));
    self.wait_for("; since the last report: 1 other operation has ended");
    is_reported = true;
    self.finish(*pending);
  });
}

TEST(Engine, LostStreamIsMadeUpForByTheOthers) {
  FakeOptions network;
  network.num_streams = 4;
  network.copies_payload = false;
  EngineOptions options;
  options.segment_bytes = 4096;
  EngineWorld world(2, network, options);
  world.each([&](EngineRank& self) {
    std::vector<float> data(1'000'000, 1.0F);
    auto pending = self.engine->submit(self.world, allreduce(data));
    if (self.rank == 0) {
      world.network().lose_stream(0, 1, 2);
      world.network().lose_stream(0, 1, 0);
    }
    self.finish(*pending);
    for (const float each : data) ASSERT_EQ(each, 2.0F);
  });
}

/// Two of four streams carry segments, and all four if so many may be used.
TEST(Engine, SegmentsGoOverAsManyStreamsAsTheyMay) {
  for (const std::uint32_t most : {1U, 2U, 8U}) {
    FakeOptions network;
    network.num_streams = 5;
    network.capacity_frames = 1;
    EngineOptions options;
    options.segment_bytes = 4096;
    options.most_streams = most;
    options.fixed_streams = true;
    EngineWorld world(2, network, options);
    world.each([](EngineRank& self) {
      std::vector<float> data(200'000, 1.0F);
      self.run(allreduce(data));
    });
    const FakeTraffic traffic = world.network().traffic(0, 1);
    EXPECT_EQ(std::ranges::count_if(traffic.bytes_by_stream, [](auto bytes) { return bytes > 0; }),
              std::min(most, 4U));
  }
}

TEST(Engine, SendsAndReceives) {
  EngineWorld world(3);
  world.each([](EngineRank& self) {
    for (const std::uint64_t count : {0UL, 10UL, 100000UL}) {
      std::vector<float> out(count, static_cast<float>(self.rank)), in(count);
      Request send;
      send.collective = Collective::kSend;
      send.input = out.data();
      send.dtype = DType::kFloat32;
      send.count = count;
      send.root = (self.rank + 1) % 3;
      Request receive;
      receive.collective = Collective::kReceive;
      receive.output = in.data();
      receive.dtype = DType::kFloat32;
      receive.count = count;
      receive.root = kAnyPeer;
      auto sent = self.engine->submit(self.world, send);
      auto received = self.engine->submit(self.world, receive);
      self.finish(*sent);
      self.finish(*received);
      ASSERT_EQ(received->source(), (self.rank + 2) % 3);
      for (const float each : in) ASSERT_EQ(each, static_cast<float>((self.rank + 2) % 3));
    }
  });
}

TEST(Engine, AbortFromAnotherThreadEndsAWait) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    if (self.rank == 1) return;
    std::vector<float> data(100000);
    auto pending = self.engine->submit(self.world, allreduce(data));
    std::thread other([&] { self.engine->abort_group(*self.world, "enough"); });
    const std::string message = error_of([&] { self.finish(*pending); });
    other.join();
    EXPECT_NE(message.find("enough"), std::string::npos) << message;
  });
}

}  // namespace
}  // namespace slipstream::test
