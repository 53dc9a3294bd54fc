#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "engine_world.h"

// Stress tests: overlapping groups, threads, faults, and groups that end with operations in flight.
namespace slipstream::test {
namespace {

Request allreduce(std::vector<double>& data) {
  Request request;
  request.collective = Collective::kAllreduce;
  request.input = request.output = data.data();
  request.dtype = DType::kFloat64;
  request.count = data.size();
  return request;
}

EngineOptions tiny() {
  EngineOptions options;
  options.segment_bytes = 1024;
  options.eager_bytes = 256;
  options.eager_pool_bytes = 2048;
  return options;
}

FakeOptions narrow(std::uint64_t seed) {
  FakeOptions network;
  network.copies_payload = false;
  network.capacity_frames = 2;
  network.num_streams = 3;
  network.jitter = 50us;
  network.seed = seed;
  return network;
}

/// Every thread has its own group on every rank and runs random operations there, several at a
/// time; the groups overlap in every pair of ranks.
void run_random_operations(EngineRank& self, std::uint32_t thread, int rounds) {
  std::vector<std::uint32_t> ranks(self.size);
  for (std::uint32_t i = 0; i < self.size; ++i) ranks[i] = (i + thread) % self.size;
  const auto group = self.engine->make_group(concat("thread ", thread), ranks);
  std::mt19937 random(thread);  // the same on every rank
  for (int round = 0; round < rounds; ++round) {
    const std::size_t in_flight = 1 + random() % 4;
    std::vector<std::vector<double>> data;
    std::vector<std::shared_ptr<Completion>> pending;
    for (std::size_t i = 0; i < in_flight; ++i) data.emplace_back(random() % 2000, 1.0);
    for (auto& each : data) {
      Request request = allreduce(each);
      request.priority = static_cast<int>(random() % 3);
      pending.push_back(self.engine->submit(group, std::move(request)));
    }
    for (const auto& each : pending) self.finish(*each);
    for (const auto& each : data) {
      for (const double value : each) ASSERT_EQ(value, self.size);
    }
  }
  self.engine->close_group(*group);
}

TEST(Stress, ThreadsAndOverlappingGroups) {
  EngineWorld world(4, narrow(1), tiny());
  world.each([](EngineRank& self) {
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&self, thread] { run_random_operations(self, thread, 20); });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Stress, StreamsThatDieAllTheTime) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    FakeOptions network = narrow(seed);
    network.schedule.random.lose_stream = 0.002;
    EngineWorld world(3, network, tiny());
    world.each([](EngineRank& self) { run_random_operations(self, 0, 20); });
  }
}

/// Streams die while segments are written and read. A repeated segment must not be added twice, nor
/// be written into memory that belongs to the caller again.
TEST(Stress, NothingIsWrittenAfterTheEndWhenStreamsDieHalfWay) {
  static constexpr unsigned char kOurs = 0xCC;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    FakeOptions network = narrow(seed);
    network.num_streams = 4;
    network.capacity_frames = 8;
    network.jitter = 400us;
    network.split_probability = 1;
    network.schedule.random.lose_stream = 0.01;
    network.schedule.random.lose_stream_late = 0.03;
    EngineWorld world(3, network, tiny());
    world.each([](EngineRank& self) {
      std::vector<std::vector<unsigned char>> buffers;
      for (unsigned char round = 1; round <= 15; ++round) {
        auto& data = buffers.emplace_back(20000, self.rank == 0 ? round : 0);
        Request request;
        request.collective = Collective::kBroadcast;
        request.input = request.output = data.data();
        request.dtype = DType::kUInt8;
        request.count = data.size();
        self.run(std::move(request));
        ASSERT_EQ(data, std::vector<unsigned char>(20000, round));
        data.assign(20000, kOurs);
      }
      std::vector<double> later(5000, 1.0);
      for (int round = 0; round < 3; ++round) self.run(allreduce(later));
      ASSERT_EQ(later, std::vector<double>(5000, 27.0));
      for (const auto& data : buffers) {
        ASSERT_EQ(data, std::vector<unsigned char>(20000, kOurs));
      }
    });
    EXPECT_FALSE(world.network().happened().empty());
  }
}

/// A small payload is sent again when its stream dies. The acknowledgement of the first copy, which
/// comes with a segment of another stream, must not free it while the link still refers to it. The
/// segments are broadcast, so that their source stays as it is while a second copy is read.
TEST(Stress, PayloadsThatAreSentAgainLiveUntilTheLinkHasReadThem) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FakeOptions network = narrow(seed);
    network.num_streams = 8;
    network.capacity_frames = 8;
    network.jitter = 400us;
    network.schedule.random.lose_stream = 0.01;
    EngineOptions options;
    options.segment_bytes = 4096;
    options.eager_bytes = 2048;
    EngineWorld world(2, network, options);
    world.each([](EngineRank& self) {
      for (int round = 0; round < 20; ++round) {
        std::vector<std::vector<double>> small(4, std::vector<double>(200, 1.0));
        std::vector<std::vector<double>> large(4, std::vector<double>(20'000, 1.0));
        std::vector<std::shared_ptr<Completion>> pending;
        for (std::uint32_t i = 0; i < 4; ++i) {
          Request segments = allreduce(large[i]);
          segments.collective = Collective::kBroadcast;
          segments.root = i % 2;
          pending.push_back(self.engine->submit(self.world, segments));
          pending.push_back(self.engine->submit(self.world, allreduce(small[i])));
        }
        for (const auto& each : pending) self.finish(*each);
        ASSERT_EQ(small[3].back(), 2.0);
      }
    });
  }
}

TEST(Stress, GroupsClosedWithWorkInFlight) {
  EngineWorld world(3, narrow(2), tiny());
  world.each([](EngineRank& self) {
    for (int round = 0; round < 100; ++round) {
      const auto group = self.engine->make_group("g", {0, 1, 2});
      std::vector<double> data(500, 1.0);
      // Rank 0 never submits the last operation; its close ends the operation everywhere.
      self.run(group, allreduce(data));
      if (self.rank == 0) {
        self.engine->close_group(*group);
        continue;
      }
      const auto pending = self.engine->submit(group, allreduce(data));
      EXPECT_NE(error_of([&] { self.finish(*pending); }), "");
      self.engine->close_group(*group);
    }
    std::vector<double> data(3000, 1.0);
    self.run(allreduce(data));
    EXPECT_EQ(data[2999], 3.0);
  });
}

TEST(Stress, AbortWhileDataFly) {
  EngineWorld world(3, narrow(3), tiny());
  world.each([](EngineRank& self) {
    for (int round = 0; round < 30; ++round) {
      const auto group = self.engine->make_group("g", {0, 1, 2});
      auto data = std::make_unique<std::vector<double>>(20000, 1.0);
      const auto pending = self.engine->submit(group, allreduce(*data));
      if (self.rank == static_cast<std::uint32_t>(round % 3)) {
        self.engine->abort_group(*group, "test");
      }
      error_of([&] { self.finish(*pending); });
      data.reset();  // nothing may touch it any more; ASAN checks
      self.engine->close_group(*group);
    }
  });
}

TEST(Stress, EngineClosedWithWorkInFlight) {
  for (int round = 0; round < 10; ++round) {
    EngineWorld world(3, narrow(4), tiny());
    world.each([&](EngineRank& self) {
      std::vector<double> data(20000, 1.0);
      const auto pending = self.engine->submit(self.world, allreduce(data));
      if (self.rank == static_cast<std::uint32_t>(round % 3)) self.engine->close();
      error_of([&] { self.finish(*pending); });
    });
  }
}

}  // namespace
}  // namespace slipstream::test
