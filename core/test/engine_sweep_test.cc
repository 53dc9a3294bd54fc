#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <complex>
#include <cstring>
#include <tuple>

#include "engine_world.h"
#include "reduce/reduce.h"
#include "shm_world.h"
#include "tcp_world.h"

// Tests every collective with every algorithm, over ranks, sizes, dtypes and operations, against
// plain loops, on the fake transport, over loopback and over shared memory. The results must be
// right and have the same bits on every rank.
namespace slipstream::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kCounts[] = {0, 1, 37, 3001};
constexpr DType kDTypes[] = {DType::kInt8,       DType::kUInt16,  DType::kInt32,
                             DType::kInt64,      DType::kFloat16, DType::kBFloat16,
                             DType::kFloat32,    DType::kFloat64, DType::kComplex64,
                             DType::kComplex128, DType::kBool};

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// Writes `value`, which is 0, 1 or 2, as an element.
void store(DType dtype, std::byte* data, std::uint64_t index, int value) {
  constexpr std::array<std::uint16_t, 3> kHalf{0, 0x3C00, 0x4000}, kBrain{0, 0x3F80, 0x4000};
  std::byte* at = data + index * size_of(dtype);
  switch (dtype) {
    case DType::kFloat16:
      return put(at, kHalf.at(static_cast<std::size_t>(value)));
    case DType::kBFloat16:
      return put(at, kBrain.at(static_cast<std::size_t>(value)));
    case DType::kFloat32:
      return put(at, static_cast<float>(value));
    case DType::kFloat64:
      return put(at, static_cast<double>(value));
    case DType::kComplex64:
      return put(at, std::complex<float>(static_cast<float>(value), 1.0F));
    case DType::kComplex128:
      return put(at, std::complex<double>(value, 1.0));
    case DType::kBool:
      return put(at, value != 0);
    default:  // integers are little-endian
      std::memcpy(at, &value, std::min(sizeof value, size_of(dtype)));
      if (size_of(dtype) > sizeof value) std::memset(at + sizeof value, 0, 4);
  }
}

/// A rank's contribution: small integers, so that sums are exact in every dtype.
Bytes contribution(DType dtype, std::uint32_t rank, std::uint64_t count) {
  Bytes bytes(count * size_of(dtype));
  for (std::uint64_t i = 0; i < count; ++i) {
    store(dtype, bytes.data(), i, static_cast<int>((i * 7 + rank * 3) % 3));
  }
  return bytes;
}

/// The concatenated contributions of all ranks.
Bytes stacked(DType dtype, std::uint32_t size, std::uint64_t count) {
  Bytes all;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    const Bytes each = contribution(dtype, rank, count);
    all.insert(all.end(), each.begin(), each.end());
  }
  return all;
}

Bytes reduced(DType dtype, ReduceOp op, std::uint32_t size, std::uint64_t count) {
  Bytes sum = contribution(dtype, 0, count);
  for (std::uint32_t rank = 1; rank < size; ++rank) {
    const Bytes each = contribution(dtype, rank, count);
    reduce(dtype, op, sum.data(), sum.data(), each.data(), count);
  }
  if (op == ReduceOp::kAverage && size > 1) divide(dtype, sum.data(), count, size);
  return sum;
}

Bytes block(const Bytes& all, std::uint32_t rank, std::uint64_t bytes) {
  return {all.begin() + static_cast<std::ptrdiff_t>(rank * bytes),
          all.begin() + static_cast<std::ptrdiff_t>((rank + 1) * bytes)};
}

Request request_for(Collective collective, Algorithm algorithm, DType dtype, std::uint64_t count) {
  Request request;
  request.collective = collective;
  request.algorithm = algorithm;
  request.dtype = dtype;
  request.count = count;
  return request;
}

constexpr std::uint32_t kSegmentBytes = 2048, kEagerBytes = 512;

TransportFamily fake() {
  FakeOptions options;
  options.copies_payload = false;
  options.jitter = 20us;
  TransportFamily family;
  family.name = "fake";
  family.make = [options](std::span<Doorbell* const> doorbells) {
    const auto size = static_cast<std::uint32_t>(doorbells.size());
    auto network = std::make_shared<FakeNetwork>(size, options);
    Wires wires;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      const auto bell = doorbells[rank]->bell();
      wires.transports.push_back(std::make_unique<FakeTransport>(*network, rank, bell));
    }
    wires.shared = network;
    return wires;
  };
  return family;
}

TransportFamily loopback() {
  TcpOptions options;
  options.num_streams = 2;
  return tcp_family("loopback", options);
}

TransportFamily shared_memory() {
  ShmOptions options;
  options.segment_bytes = kSegmentBytes;
  return shm_family("shm", options);
}

/// A world of engines with small segments, so that little data need many of them.
class Sweep : public testing::TestWithParam<std::tuple<TransportFamily, std::uint32_t>> {
 protected:
  static EngineOptions small_segments() {
    EngineOptions options;
    options.segment_bytes = kSegmentBytes;
    options.eager_bytes = kEagerBytes;
    return options;
  }

  EngineWorld world{std::get<1>(GetParam()), std::get<0>(GetParam()), small_segments()};
};

TEST_P(Sweep, ReducesEveryDTypeByEveryOperation) {
  world.each([&](EngineRank& self) {
    for (const Algorithm algorithm :
         {Algorithm::kRing, Algorithm::kRecursiveDoubling, Algorithm::kDirect}) {
      for (const DType dtype : kDTypes) {
        for (std::size_t i = 0; i < kNumReduceOps; ++i) {
          const auto op = static_cast<ReduceOp>(i);
          for (const std::uint64_t count : kCounts) {
            // The sign of a complex zero depends on the order of the factors, which differs between
            // plans.
            const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
            if (!is_supported(op, dtype) || (is_complex && op == ReduceOp::kProduct)) continue;
            Bytes data = contribution(dtype, self.rank, count);
            Request request = request_for(Collective::kAllreduce, algorithm, dtype, count);
            request.op = op;
            request.input = request.output = data.data();
            self.run(request);
            ASSERT_EQ(data, reduced(dtype, op, self.size, count))
                << name_of(algorithm) << ' ' << name_of(op) << ' ' << name_of(dtype) << " x "
                << count << " on rank " << self.rank;
          }
        }
      }
    }
  });
}

TEST_P(Sweep, ReducesToTheRoot) {
  world.each([&](EngineRank& self) {
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kBinomial}) {
      for (const std::uint64_t count : kCounts) {
        for (std::uint32_t root = 0; root < self.size; ++root) {
          const Bytes input = contribution(DType::kFloat32, self.rank, count);
          Bytes output(input.size());
          Request request = request_for(Collective::kReduce, algorithm, DType::kFloat32, count);
          request.op = ReduceOp::kAverage;
          request.root = root;
          request.input = input.data();
          request.output = output.data();
          self.run(request);
          if (self.rank != root) continue;
          ASSERT_EQ(output, reduced(DType::kFloat32, ReduceOp::kAverage, self.size, count))
              << name_of(algorithm) << " x " << count << " root " << root;
        }
      }
    }
  });
}

TEST_P(Sweep, ScattersTheReduction) {
  world.each([&](EngineRank& self) {
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
      for (const std::uint64_t count : kCounts) {
        const Bytes input = contribution(DType::kInt32, self.rank, count * self.size);
        Bytes output(count * 4);
        Request request = request_for(Collective::kReduceScatter, algorithm, DType::kInt32, count);
        request.input = input.data();
        request.output = output.data();
        self.run(request);
        const Bytes all = reduced(DType::kInt32, ReduceOp::kSum, self.size, count * self.size);
        ASSERT_EQ(output, block(all, self.rank, count * 4)) << name_of(algorithm) << " x " << count;
      }
    }
  });
}

TEST_P(Sweep, GathersFromEveryRank) {
  world.each([&](EngineRank& self) {
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
      for (const std::uint64_t count : kCounts) {
        const Bytes input = contribution(DType::kUInt16, self.rank, count);
        Bytes output(count * 2 * self.size);
        Request request = request_for(Collective::kAllGather, algorithm, DType::kUInt16, count);
        request.input = input.data();
        request.output = output.data();
        self.run(request);
        ASSERT_EQ(output, stacked(DType::kUInt16, self.size, count))
            << name_of(algorithm) << " x " << count;
      }
    }
  });
}

TEST_P(Sweep, GathersBlocksOfDifferentLength) {
  world.each([&](EngineRank& self) {
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
      std::vector<std::uint64_t> counts(self.size);
      Bytes expected;
      for (std::uint32_t rank = 0; rank < self.size; ++rank) {
        counts[rank] = rank % 3 == 1 ? 0 : 900U * rank + 1;
        const Bytes each = contribution(DType::kFloat64, rank, counts[rank]);
        expected.insert(expected.end(), each.begin(), each.end());
      }
      const Bytes input = contribution(DType::kFloat64, self.rank, counts[self.rank]);
      Bytes output(expected.size());
      Request request = request_for(Collective::kAllGather, algorithm, DType::kFloat64, 0);
      request.receive_counts = counts;
      request.input = input.data();
      request.output = output.data();
      self.run(request);
      ASSERT_EQ(output, expected) << name_of(algorithm);
    }
  });
}

TEST_P(Sweep, BroadcastsFromEveryRoot) {
  world.each([&](EngineRank& self) {
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kBinomial, Algorithm::kDirect}) {
      for (const std::uint64_t count : kCounts) {
        for (std::uint32_t root = 0; root < self.size; ++root) {
          Bytes data = contribution(DType::kBFloat16, self.rank, count);
          Request request = request_for(Collective::kBroadcast, algorithm, DType::kBFloat16, count);
          request.root = root;
          request.input = request.output = data.data();
          self.run(request);
          ASSERT_EQ(data, contribution(DType::kBFloat16, root, count))
              << name_of(algorithm) << " x " << count << " root " << root;
        }
      }
    }
  });
}

TEST_P(Sweep, GathersAtAndScattersFromTheRoot) {
  world.each([&](EngineRank& self) {
    for (const std::uint64_t count : kCounts) {
      const std::uint32_t root = self.size - 1;
      const Bytes mine = contribution(DType::kInt8, self.rank, count);
      Bytes all(self.rank == root ? count * self.size : 0);
      Request gather = request_for(Collective::kGather, Algorithm::kAuto, DType::kInt8, count);
      gather.root = root;
      gather.input = mine.data();
      gather.output = all.data();
      self.run(gather);
      const Bytes expected = stacked(DType::kInt8, self.rank == root ? self.size : 0, count);
      ASSERT_EQ(all, expected);

      Bytes back(count);
      Request scatter = request_for(Collective::kScatter, Algorithm::kAuto, DType::kInt8, count);
      scatter.root = root;
      scatter.input = all.data();
      scatter.output = back.data();
      self.run(scatter);
      ASSERT_EQ(back, mine) << "x " << count;
    }
  });
}

TEST_P(Sweep, ExchangesBlocks) {
  world.each([&](EngineRank& self) {
    for (const std::uint64_t count : kCounts) {
      const Bytes input = contribution(DType::kInt32, self.rank, count * self.size);
      Bytes output(input.size()), expected;
      for (std::uint32_t from = 0; from < self.size; ++from) {
        const Bytes theirs = contribution(DType::kInt32, from, count * self.size);
        const Bytes part = block(theirs, self.rank, count * 4);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      Request request = request_for(Collective::kAllToAll, Algorithm::kAuto, DType::kInt32, count);
      request.input = input.data();
      request.output = output.data();
      self.run(request);
      ASSERT_EQ(output, expected) << "x " << count;
    }
  });
}

TEST_P(Sweep, ExchangesBlocksOfDifferentLength) {
  world.each([&](EngineRank& self) {
    const auto count = [](std::uint32_t from, std::uint32_t to) -> std::uint64_t {
      return (from + to) % 3 == 0 ? 0 : 400U * from + 10U * to + 1;
    };
    Request request = request_for(Collective::kAllToAll, Algorithm::kAuto, DType::kUInt8, 0);
    Bytes input, expected;
    for (std::uint32_t rank = 0; rank < self.size; ++rank) {
      request.send_counts.push_back(count(self.rank, rank));
      request.receive_counts.push_back(count(rank, self.rank));
      input.resize(input.size() + count(self.rank, rank), std::byte(self.rank * 16 + rank));
      expected.resize(expected.size() + count(rank, self.rank), std::byte(rank * 16 + self.rank));
    }
    Bytes output(expected.size());
    request.input = input.data();
    request.output = output.data();
    self.run(request);
    ASSERT_EQ(output, expected);
  });
}

TEST_P(Sweep, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<std::uint32_t> arrived{0};
  world.each([&](EngineRank& self) {
    std::uint32_t round = 0;
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRecursiveDoubling}) {
      for (int repeat = 0; repeat < 10; ++repeat) {
        ++arrived;
        ++round;
        self.run(request_for(Collective::kBarrier, algorithm, DType::kUInt8, 0));
        ASSERT_GE(arrived.load(), round * self.size);
      }
    }
  });
}

std::string name_of_case(const testing::TestParamInfo<Sweep::ParamType>& tested) {
  return concat(std::get<0>(tested.param).name, "_", std::get<1>(tested.param), "_ranks");
}

INSTANTIATE_TEST_SUITE_P(Transports, Sweep,
                         testing::Combine(testing::Values(fake(), loopback(), shared_memory()),
                                          testing::Values(1U, 2U, 3U, 4U, 5U, 7U, 8U)),
                         name_of_case);

}  // namespace
}  // namespace slipstream::test
