#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "codec/wire.h"
#include "engine_world.h"

// Tests of allreduces with a codec: results are close to the sum, equal on every rank, exact within
// a host, and error feedback loses nothing for good.
namespace slipstream::test {
namespace {

struct Case {
  std::uint32_t local, hosts;
  Codec codec;
  ReduceOp op;
};

std::vector<Place> hosts_of(const Case& c) {
  std::vector<Place> places;
  for (std::uint32_t rank = 0; rank < c.local * c.hosts; ++rank) {
    places.push_back({"host " + std::to_string(rank / c.local), ""});
  }
  return places;
}

float value_of(std::uint32_t rank, std::uint64_t i, std::uint32_t step) {
  const std::uint64_t mixed = (i * 2654435761U + rank * 40503U + step * 9973U) % 2003;
  return (static_cast<float>(mixed) - 1001.0F) / 1001.0F;
}

/// The allreduce in place.
Request sum_of(std::vector<float>& data, Codec codec) {
  Request request;
  request.collective = Collective::kAllreduce;
  request.dtype = DType::kFloat32;
  request.count = data.size();
  request.input = request.output = data.data();
  request.codec = codec;
  request.timeout = 5s;
  return request;
}

class EncodedWorld {
 public:
  EncodedWorld(const Case& c, std::uint64_t count)
      : c_(c),
        count_(count),
        size_(c.local * c.hosts),
        world_(size_, network(), options(), hosts_of(c)),
        residuals_(size_, std::vector<float>(count)) {}

  /// Runs one allreduce on all ranks and returns their outputs.
  std::vector<std::vector<float>> run(std::uint32_t step, bool keeps_residuals, bool in_place) {
    std::vector<std::vector<float>> outputs(size_);
    world_.each([&](EngineRank& self) {
      std::vector<float> input(count_);
      for (std::uint64_t i = 0; i < count_; ++i) input[i] = value_of(self.rank, i, step);
      std::vector<float>& output = outputs[self.rank];
      output = in_place ? input : std::vector<float>(count_, NAN);
      Request request;
      request.collective = Collective::kAllreduce;
      request.dtype = DType::kFloat32;
      request.op = c_.op;
      request.count = count_;
      request.codec = c_.codec;
      request.input = in_place ? output.data() : input.data();
      request.output = output.data();
      if (keeps_residuals) request.residual = residuals_[self.rank].data();
      self.run(request);
    });
    return outputs;
  }

  [[nodiscard]] float exact(std::uint64_t i, std::uint32_t step) const {
    float sum = 0;
    for (std::uint32_t rank = 0; rank < size_; ++rank) sum += value_of(rank, i, step);
    return c_.op == ReduceOp::kAverage ? sum / static_cast<float>(size_) : sum;
  }
  /// The residuals of an element on all ranks, in units of the result.
  [[nodiscard]] double kept(std::uint64_t i) const {
    double sum = 0;
    for (const auto& residual : residuals_) sum += static_cast<double>(residual[i]);
    return c_.op == ReduceOp::kAverage ? sum / size_ : sum;
  }
  EngineWorld& engines() { return world_; }

 private:
  static FakeOptions network() {
    FakeOptions options;
    options.jitter = 20us;
    return options;
  }
  static EngineOptions options() {
    EngineOptions options;
    options.segment_bytes = 8192;
    options.eager_bytes = 512;
    return options;
  }

  const Case c_;
  const std::uint64_t count_;
  const std::uint32_t size_;
  EngineWorld world_;
  std::vector<std::vector<float>> residuals_;
};

/// The largest error of one encoding of a value of magnitude 1, times the number of encodings in a
/// sum.
float tolerance(const Case& c) {
  const float one = c.codec == Codec::kInt8   ? 0.5F / 127
                    : c.codec == Codec::kBf16 ? 1.0F / 256
                                              : 1.0F / 2048;
  const auto ranks = static_cast<float>(c.local * c.hosts);
  const float sum = one * ranks * static_cast<float>(c.hosts) * 1.01F + one * ranks;
  return c.op == ReduceOp::kAverage ? sum / ranks : sum;
}

class EncodedSweep : public testing::TestWithParam<Case> {};

TEST_P(EncodedSweep, IsCloseToTheSumAndTheSameBitsEverywhere) {
  for (const std::uint64_t count : {8192U, 8193U, 50'001U}) {
    EncodedWorld world(GetParam(), count);
    for (const bool in_place : {false, true}) {
      const auto outputs = world.run(0, false, in_place);
      for (std::uint64_t i = 0; i < count; ++i) {
        ASSERT_NEAR(outputs[0][i], world.exact(i, 0), tolerance(GetParam())) << i;
      }
      for (const auto& output : outputs) {
        ASSERT_EQ(std::memcmp(output.data(), outputs[0].data(), count * sizeof(float)), 0);
      }
    }
  }
}

TEST_P(EncodedSweep, ErrorFeedbackLosesNothingForGood) {
  constexpr std::uint64_t kCount = 20'000;
  constexpr std::uint32_t kSteps = 5;
  EncodedWorld world(GetParam(), kCount);
  std::vector<double> sent(kCount), meant(kCount);
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    const auto outputs = world.run(step, true, false);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      sent[i] += static_cast<double>(outputs[0][i]);
      meant[i] += static_cast<double>(world.exact(i, step));
    }
  }
  double largest = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(sent[i] + world.kept(i), meant[i], 2e-5) << i;
    largest = std::max(largest, std::abs(world.kept(i)));
  }
  EXPECT_GT(largest, 1e-5) << "the codec lost nothing: it was not used";
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::to_string(c.hosts) + "x" + std::to_string(c.local) + std::string(name_of(c.codec)) +
         (c.op == ReduceOp::kAverage ? "average" : "sum");
}

INSTANTIATE_TEST_SUITE_P(Codecs, EncodedSweep,
                         testing::Values(Case{1, 2, Codec::kInt8, ReduceOp::kSum},
                                         Case{1, 4, Codec::kInt8, ReduceOp::kAverage},
                                         Case{1, 3, Codec::kFp16, ReduceOp::kAverage},
                                         Case{2, 2, Codec::kFp16, ReduceOp::kSum},
                                         Case{2, 3, Codec::kInt8, ReduceOp::kAverage},
                                         Case{1, 5, Codec::kBf16, ReduceOp::kSum},
                                         Case{3, 2, Codec::kBf16, ReduceOp::kAverage}),
                         name_of_case);

TEST(Encoded, IsExactWithinAHost) {
  EncodedWorld world({4, 1, Codec::kInt8, ReduceOp::kSum}, 20'000);
  const auto outputs = world.run(0, false, false);
  for (std::uint64_t i = 0; i < 20'000; ++i) ASSERT_NEAR(outputs[0][i], world.exact(i, 0), 1e-6);
}

TEST(Encoded, RanksThatPassAnotherCodecAreNamed) {
  EncodedWorld world({1, 2, Codec::kInt8, ReduceOp::kSum}, 20'000);
  world.engines().each([](EngineRank& self) {
    std::vector<float> data(20'000);
    const Codec codec = self.rank == 0 ? Codec::kInt8 : Codec::kNone;
    const std::string error = error_of([&] { self.run(sum_of(data, codec)); });
    EXPECT_NE(error.find("float32 x 20000 as int8"), std::string::npos) << error;
  });
}

/// An urgent operation that one rank has not submitted must not hold up others.
TEST(Encoded, ARankMayWaitForOneBeforeItSubmitsTheNext) {
  const Case c{1, 3, Codec::kInt8, ReduceOp::kSum};
  EngineOptions options;
  options.segment_bytes = 8192;
  EngineWorld world(3, FakeOptions{}, options, hosts_of(c));
  world.each([](EngineRank& self) {
    std::vector<float> first(300'000, 1.0F), urgent(300'000, 2.0F);
    const auto begun = self.engine->submit(self.world, sum_of(first, Codec::kInt8));
    if (self.rank == 0) self.finish(*begun);
    Request request = sum_of(urgent, Codec::kInt8);
    request.priority = 1;
    self.run(std::move(request));
    self.finish(*begun);
    EXPECT_FLOAT_EQ(first[0], 3.0F);
    EXPECT_FLOAT_EQ(urgent[0], 6.0F);
  });
}

TEST(Encoded, SegmentsMustHoldABlock) {
  EngineOptions options;
  options.segment_bytes = 4096;
  EngineWorld world(2, FakeOptions{}, options, hosts_of({1, 2, Codec::kFp16, ReduceOp::kSum}));
  std::vector<float> data(20'000);
  EXPECT_NE(error_of([&] {
              world[0].run(sum_of(data, Codec::kFp16));
            }).find("codec fp16 needs at least 4100"),
            std::string::npos);
}

}  // namespace
}  // namespace slipstream::test
