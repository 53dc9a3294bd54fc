#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "device/fake/fake_device.h"
#include "staged/staged_group.h"
#include "test/engine_world.h"

// Collectives on the memory of fake devices, compared with the same collectives on host memory.
namespace slipstream::test {
namespace {

using Values = std::vector<std::int32_t>;

constexpr std::size_t kSlotBytes = 32 << 10;
constexpr std::uint32_t kSizes[] = {1, 1000, 8192, 50'001};

StagingOptions small_slots() {
  return {.ring = {.num_slots = 4, .slot_bytes = kSlotBytes},
          .max_chunks_ahead = 20,
          .allow_small_slots = true};
}

/// A rank with a device. Tensors are kept until the end of the test.
class StagedRank {
 public:
  explicit StagedRank(EngineRank& rank, std::uint64_t seed = 1, FakeDeviceOptions options = {})
      : rank_(rank),
        device_(with(options, seed + rank.rank)),
        pinned_(std::make_unique<PinnedMemory>(device_, 8 << 20)),
        stream_(device_, device_.make_stream()),
        group_(std::make_unique<StagedGroup>(*rank.engine, rank.world, device_, small_slots())) {}
  ~StagedRank() { group_.reset(); }

  EngineRank& rank() { return rank_; }
  FakeDevice& device() { return device_; }
  StagedGroup& group() { return *group_; }
  void drop_group() { group_.reset(); }
  [[nodiscard]] StreamHandle stream() const { return stream_.get(); }

  DeviceAddress upload(const Values& values) {
    const DeviceAddress memory = allocate(values.size());
    std::byte* place = pinned_->bytes().data() + used_;
    used_ += bytes_of(values.size());
    std::ranges::copy(std::as_bytes(std::span(values)), place);
    device_.copy_to_device(stream(), memory, place, bytes_of(values.size()));
    return memory;
  }
  DeviceAddress allocate(std::size_t count) { return device_.allocate(bytes_of(count)); }
  Values download(DeviceAddress memory, std::size_t count) {
    std::byte* place = pinned_->bytes().data() + used_;
    used_ += bytes_of(count);
    device_.copy_to_host(stream(), place, memory, bytes_of(count));
    device_.synchronize(stream());
    Values values(count);
    std::ranges::copy_n(place, static_cast<std::ptrdiff_t>(count * sizeof(std::int32_t)),
                        std::as_writable_bytes(std::span(values)).data());
    return values;
  }

 private:
  static std::size_t bytes_of(std::size_t count) {
    return (std::max<std::size_t>(1, count) * sizeof(std::int32_t) + 63) / 64 * 64;
  }
  static FakeDeviceOptions with(FakeDeviceOptions options, std::uint64_t seed) {
    options.seed = seed;
    return options;
  }

  EngineRank& rank_;
  FakeDevice device_;
  std::unique_ptr<PinnedMemory> pinned_;
  OwnedStream stream_;
  std::unique_ptr<StagedGroup> group_;
  std::size_t used_ = 0;
};

/// A collective, and the lengths of its buffers.
struct Case {
  Request request;
  std::size_t input = 0, output = 0;
};

Case case_of(Collective collective, std::uint32_t count, std::uint32_t rank, std::uint32_t size) {
  Case made;
  made.request.collective = collective;
  made.request.dtype = DType::kInt32;
  made.request.count = count;
  made.request.root = size - 1;
  made.input = made.output = count;
  const bool is_root = rank == size - 1;
  const std::size_t all = std::size_t{count} * size;
  switch (collective) {
    case Collective::kAllGather:
      made.output = all;
      break;
    case Collective::kGather:
      made.output = is_root ? all : 0;
      break;
    case Collective::kReduceScatter:
      made.input = all;
      break;
    case Collective::kScatter:
      made.input = is_root ? all : 0;
      break;
    case Collective::kAllToAll:
      made.input = made.output = all;
      break;
    default:
      break;
  }
  return made;
}

/// Whether the collective gives this rank a result.
bool has_result(const Request& request, std::uint32_t rank) {
  const bool at_root =
      request.collective == Collective::kReduce || request.collective == Collective::kGather;
  return !at_root || request.root == rank;
}

Values random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  Values values(count);
  for (std::int32_t& value : values) value = static_cast<std::int32_t>(random() % 1000);
  return values;
}

Values on_host(EngineRank& rank, const Case& made, Values input) {
  Values output(made.output);
  Request request = made.request;
  const bool in_place = request.collective == Collective::kBroadcast;
  request.input = input.data();
  request.output = in_place ? input.data() : output.data();
  rank.run(request);
  return in_place ? input : output;
}

struct Staged {
  StagedOperation operation;
  DeviceAddress result = 0;
  Values expected;
};

Staged on_device(StagedRank& staged, const Case& made, const Values& input, Values expected) {
  Request request = made.request;
  const DeviceAddress source = staged.upload(input);
  const bool in_place = request.collective == Collective::kBroadcast;
  const DeviceAddress target = in_place ? source : staged.allocate(made.output);
  request.input = reinterpret_cast<const void*>(source);
  request.output = reinterpret_cast<void*>(target);
  return {staged.group().submit(request, staged.stream()), target, std::move(expected)};
}

class StagedCollectives : public testing::TestWithParam<std::uint32_t> {};

TEST_P(StagedCollectives, GiveTheResultsOfHostMemory) {
  constexpr Collective kAll[] = {Collective::kAllreduce, Collective::kBroadcast,
                                 Collective::kReduce,    Collective::kAllGather,
                                 Collective::kGather,    Collective::kReduceScatter,
                                 Collective::kScatter,   Collective::kAllToAll};
  const std::uint32_t size = GetParam();
  EngineWorld world(size);
  world.each([&](EngineRank& rank) {
    StagedRank staged(rank, 10, {.longest_delay = 50us});
    std::vector<Staged> all;
    for (const Collective collective : kAll) {
      for (const std::uint32_t count : kSizes) {
        if (count * size > 200'000) continue;
        const Case made = case_of(collective, count, rank.rank, size);
        const Values input = random_values(made.input, count + rank.rank);
        all.push_back(on_device(staged, made, input, on_host(rank, made, input)));
        if (!has_result(made.request, rank.rank)) all.back().expected.clear();
      }
    }
    for (const Staged& one : all) {
      StagedGroup::wait(staged.stream(), one.operation);
      EXPECT_EQ(staged.download(one.result, one.expected.size()), one.expected);
      EXPECT_TRUE(StagedGroup::is_done(one.operation));
      EXPECT_TRUE(one.operation.is_exchanged());
    }
    rank.run({.collective = Collective::kBarrier});
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, StagedCollectives, testing::Values(1, 2, 3, 4));

TEST(Staged, BlocksOfSeveralLengthsAreGathered) {
  EngineWorld world(3);
  world.each([](EngineRank& rank) {
    StagedRank staged(rank);
    const std::vector<std::uint64_t> counts{9000, 0, 20'000};
    Request request{.collective = Collective::kAllGather, .dtype = DType::kInt32};
    request.receive_counts = counts;
    const Values own(counts[rank.rank], static_cast<std::int32_t>(rank.rank));
    const DeviceAddress source = staged.upload(own);
    const DeviceAddress target = staged.allocate(29'000);
    request.input = reinterpret_cast<const void*>(source);
    request.output = reinterpret_cast<void*>(target);
    const StagedOperation operation = staged.group().submit(request, staged.stream());
    StagedGroup::wait(staged.stream(), operation);
    Values expected(9000, 0);
    expected.resize(29'000, 2);
    EXPECT_EQ(staged.download(target, 29'000), expected);
    rank.run({.collective = Collective::kBarrier});
  });
}

// More chunks than slots in both directions at once.
TEST(Staged, RanksMaySendLargeMessagesToEachOther) {
  EngineWorld world(2);
  world.each([](EngineRank& rank) {
    StagedRank staged(rank);
    constexpr std::uint32_t kCount = 100'000;
    const DeviceAddress mine = staged.upload(random_values(kCount, rank.rank));
    const DeviceAddress theirs = staged.allocate(kCount);
    Request request{.collective = Collective::kSend, .dtype = DType::kInt32, .count = kCount};
    request.root = 1 - rank.rank;
    request.input = reinterpret_cast<const void*>(mine);
    staged.group().submit(request, staged.stream());
    request.collective = Collective::kReceive;
    request.input = nullptr;
    request.output = reinterpret_cast<void*>(theirs);
    const StagedOperation received = staged.group().submit(request, staged.stream());
    StagedGroup::wait(staged.stream(), received);
    EXPECT_EQ(staged.download(theirs, kCount), random_values(kCount, 1 - rank.rank));
    rank.run({.collective = Collective::kBarrier});
  });
}

TEST(Staged, OperationsOfAGroupStartInTheOrderOfTheirSubmission) {
  EngineWorld world(2);
  world.each([](EngineRank& rank) {
    StagedRank staged(rank);
    Values values(8192, 1);
    const DeviceAddress memory = staged.upload(values);
    Request request{.collective = Collective::kAllreduce, .dtype = DType::kInt32, .count = 8192};
    request.input = reinterpret_cast<const void*>(memory);
    request.output = reinterpret_cast<void*>(memory);
    const StagedOperation first = staged.group().submit(request, staged.stream());
    request.input = request.output = values.data();
    rank.run(request);  // its order among the group's operations is the same on both ranks
    EXPECT_TRUE(first.chunks.front()->done());
    StagedGroup::wait(staged.stream(), first);
    EXPECT_EQ(staged.download(memory, 8192), Values(8192, 2));
    EXPECT_EQ(values, Values(8192, 2));
    rank.run({.collective = Collective::kBarrier});
  });
}

TEST(Staged, AnErrorReleasesTheDeviceAndIsRaisedByTheNextCall) {
  EngineWorld world(2);
  world.each([](EngineRank& rank) {
    StagedRank staged(rank);
    const DeviceAddress memory = staged.upload(Values(100'000, 1));
    Request request{.collective = Collective::kAllreduce, .dtype = DType::kInt32};
    request.count = rank.rank == 0 ? 100'000 : 8192;
    request.input = reinterpret_cast<const void*>(memory);
    request.output = reinterpret_cast<void*>(memory);
    const StagedOperation operation = staged.group().submit(request, staged.stream());
    StagedGroup::wait(staged.stream(), operation);
    if (rank.rank == 1) {
      request.count = 10;
      const StagedOperation next = staged.group().submit(request, staged.stream());
      StagedGroup::wait(staged.stream(), next);
    }
    staged.device().synchronize(staged.stream());  // does not hang
    while (!operation.is_exchanged()) std::this_thread::yield();
    EXPECT_TRUE(rank.rank == 1 || operation.error() != nullptr);
    EXPECT_THROW(
        {
          for (int i = 0; i < 1000; ++i) {
            staged.group().submit(request, staged.stream());
            std::this_thread::sleep_for(1ms);
          }
        },
        Error);
  });
}

TEST(Staged, AGroupThatIsDroppedEndsItsOperations) {
  EngineWorld world(2);
  StagedRank staged(world[0]);
  const DeviceAddress memory = staged.upload(Values(100'000, 1));
  Request request{.collective = Collective::kAllreduce, .dtype = DType::kInt32, .count = 100'000};
  request.input = reinterpret_cast<const void*>(memory);
  request.output = reinterpret_cast<void*>(memory);
  const StagedOperation operation = staged.group().submit(request, staged.stream());
  const auto chunks = operation.chunks;
  staged.drop_group();  // rank 1 never takes part
  for (const auto& chunk : chunks) EXPECT_TRUE(chunk->done());
  staged.device().synchronize(staged.stream());
}

TEST(Staged, WhatCannotBeStagedIsRefused) {
  EngineWorld world(2);
  StagedRank staged(world[0]);
  EXPECT_THROW(staged.group().submit({.collective = Collective::kBarrier}, staged.stream()), Error);
  Request request{.collective = Collective::kReceive, .count = 1, .root = kAnyPeer};
  EXPECT_THROW(staged.group().submit(request, staged.stream()), Error);
  request = {.collective = Collective::kAllToAll};
  request.send_counts = {1, 1};
  EXPECT_THROW(staged.group().submit(request, staged.stream()), Error);
}

}  // namespace
}  // namespace slipstream::test
