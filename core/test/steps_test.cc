#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "collective/choose.h"
#include "collective/plan.h"
#include "engine_world.h"

// Compares steps and bytes of each algorithm on 64 ranks with its formula, and prints both. Steps
// are counted in the plans of all ranks: the longest chain of messages that wait for one another.
// Bytes are counted in the plans and in the data that the engines have sent, which include frames.
namespace slipstream::test {
namespace {

TEST(Plan, StepsWaitForSegmentsOnlyOfWhatTheyShare) {
  PlanBuilder builder(Algorithm::kDirect);
  const Region one = builder.scratch(64), other = builder.scratch(64);
  const std::uint32_t received = builder.receive(1, 0, one);
  const std::uint32_t same = builder.send(2, 0, one, {received});
  const std::uint32_t apart = builder.send(2, 1, other, {received});
  const Plan plan = std::move(builder).build();
  EXPECT_TRUE(plan.steps[same].after.at(0).by_segment);
  EXPECT_FALSE(plan.steps[apart].after.at(0).by_segment);
}

TEST(Choice, OfSmallAllreducesIsDirectAmongEight) {
  const Layout flat;
  Shape shape{Collective::kAllreduce};
  shape.count = 8192;
  shape.layout = &flat;
  for (const auto& [size, algorithm] :
       {std::pair{8U, Algorithm::kDirect}, {9U, Algorithm::kRecursiveDoubling}}) {
    shape.size = size;
    EXPECT_EQ(choose(shape, Algorithm::kAuto), algorithm) << size << " ranks";
  }
}

TEST(Plan, SendsOfAFlockKnowEachOther) {
  constexpr std::uint32_t kNone = PlanBuilder::kNone;
  PlanBuilder builder(Algorithm::kDimensions);
  const Region region = builder.scratch(64);
  const std::uint32_t first = builder.send(1, 0, region), second = builder.send(2, 0, region);
  const std::uint32_t alone = builder.send(3, 0, region), third = builder.send(4, 0, region);
  builder.keep_pace({first, kNone, second});
  builder.keep_pace({kNone});  // no flock at all
  builder.keep_pace({third});
  const Plan plan = std::move(builder).build();
  using Steps = std::vector<std::uint32_t>;
  EXPECT_EQ(plan.flocks, (std::vector<Steps>{{}, {first, second}, {third}}));
  EXPECT_EQ(plan.steps[first].flock, 1U);
  EXPECT_EQ(plan.steps[second].flock, 1U);
  EXPECT_EQ(plan.steps[alone].flock, 0U);
  EXPECT_EQ(plan.steps[third].flock, 2U);
}

constexpr std::uint32_t kRanks = 64;
constexpr std::uint64_t kCount = 64 * 1024;  // floats; a multiple of the ranks, so blocks are equal
constexpr double kBytes = kCount * sizeof(float);
constexpr double kShare = (kRanks - 1.0) / kRanks;
constexpr std::uint32_t kLocal = 8, kHosts = 4;  // and two racks

struct Formula {
  const char* name;
  Collective collective;
  Algorithm algorithm;
  std::uint32_t steps;
  double bytes;  // bytes that the busiest rank sends
};

/// n = 64, log2 n = 6, and S is the number of bytes of the whole buffer.
const std::vector<Formula>& formulas() {
  using enum Collective;
  using enum Algorithm;
  static const std::vector<Formula> all{
      {"allreduce, ring: 2(n-1), 2S(n-1)/n", kAllreduce, kRing, 126, 2 * kBytes * kShare},
      {"allreduce, 8x4x2: 2(7+3+1), 2S(n-1)/n", kAllreduce, kDimensions, 22, 2 * kBytes * kShare},
      {"allreduce, doubling: log2 n, S log2 n", kAllreduce, kRecursiveDoubling, 6, 6 * kBytes},
      {"allreduce, direct: 1, S(n-1)", kAllreduce, kDirect, 1, 63 * kBytes},
      {"reduce_scatter, ring: n-1, S(n-1)/n", kReduceScatter, kRing, 63, kBytes * kShare},
      {"reduce_scatter, direct: 1, S(n-1)/n", kReduceScatter, kDirect, 1, kBytes * kShare},
      {"all_gather, ring: n-1, S(n-1)/n", kAllGather, kRing, 63, kBytes * kShare},
      {"all_gather, direct: 1, S(n-1)/n", kAllGather, kDirect, 1, kBytes * kShare},
      {"broadcast, ring: n-1, S", kBroadcast, kRing, 63, kBytes},
      {"broadcast, binomial: log2 n, S log2 n", kBroadcast, kBinomial, 6, 6 * kBytes},
      {"reduce, ring: n, S", kReduce, kRing, 64, kBytes},
      {"all_to_all, direct: 1, S(n-1)/n", kAllToAll, kDirect, 1, kBytes * kShare},
      {"barrier, doubling: log2 n, 0", kBarrier, kRecursiveDoubling, 6, 0},
  };
  return all;
}

std::vector<Place> places() {
  std::vector<Place> all;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::uint32_t host = rank / kLocal;
    all.push_back({concat("host", host), concat("rack", host / kHosts)});
  }
  return all;
}

Request request_of(const Formula& formula, std::vector<float>& in, std::vector<float>& out) {
  Request request;
  request.collective = formula.collective;
  request.algorithm = formula.algorithm;
  request.dtype = DType::kFloat32;
  const bool by_block = formula.collective == Collective::kReduceScatter ||
                        formula.collective == Collective::kAllGather ||
                        formula.collective == Collective::kAllToAll;
  request.count = formula.bytes == 0 ? 0 : by_block ? kCount / kRanks : kCount;
  in.assign(kCount, 1.0F);
  out.assign(kCount, 0.0F);
  request.input = in.data();
  request.output = formula.collective == Collective::kBroadcast ? in.data() : out.data();
  return request;
}

/// The longest chain of messages through the plans of all ranks.
std::uint32_t longest_chain(const std::vector<Plan>& plans) {
  std::vector<std::vector<std::uint32_t>> length(plans.size());  // after each step
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    length[rank].resize(plans[rank].steps.size());
  }
  std::uint32_t longest = 0;
  for (bool changes = true; changes;) {
    changes = false;
    for (std::uint32_t rank = 0; rank < plans.size(); ++rank) {
      for (std::size_t i = 0; i < plans[rank].steps.size(); ++i) {
        const Step& step = plans[rank].steps[i];
        std::uint32_t now = length[rank][i];
        for (const Step::Link& link : step.after) now = std::max(now, length[rank][link.step]);
        if (now != length[rank][i]) {
          length[rank][i] = now;
          changes = true;
        }
        if (step.kind != Step::Kind::kSend) continue;
        const std::uint32_t at = plans[step.peer].receives.at(Plan::key(rank, step.tag));
        if (length[step.peer][at] < now + 1) {
          length[step.peer][at] = now + 1;
          changes = true;
        }
        longest = std::max(longest, now + 1);
      }
    }
  }
  return longest;
}

/// The bytes that the busiest rank sends, according to the plans.
double most_bytes(const std::vector<Plan>& plans) {
  std::uint64_t most = 0;
  for (const Plan& plan : plans) {
    std::uint64_t bytes = 0;
    for (const Step& step : plan.steps) {
      if (step.kind == Step::Kind::kSend) bytes += step.from.bytes;
    }
    most = std::max(most, bytes);
  }
  return static_cast<double>(most);
}

class Steps : public testing::TestWithParam<Formula> {};

TEST_P(Steps, AreAsTheFormulaSays) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "64 ranks take minutes with ThreadSanitizer, and send heartbeats meanwhile; "
                  "engine_sweep_test runs the same algorithms with fewer ranks";
#endif
  const Formula& formula = GetParam();
  EngineWorld world(kRanks, FakeOptions{}, EngineOptions{}, places());
  std::vector<Plan> plans(kRanks);
  std::vector<double> sent(kRanks);
  world.each([&](EngineRank& self) {
    std::vector<float> in, out;
    Request request = request_of(formula, in, out);
    const Shape shape = shape_of(request, *self.world);
    plans[self.rank] = make_plan(shape, choose(shape, formula.algorithm));
    self.run(std::move(request));
  });
  world.each([&](EngineRank& self) {
    const Stats stats = self.engine->stats();
    sent[self.rank] = static_cast<double>(stats.network_bytes_sent + stats.shm_bytes_sent);
  });
  const std::uint32_t steps = longest_chain(plans);
  const double most = *std::ranges::max_element(sent);
  std::printf("%-40s  steps %3u of %3u   bytes %10.0f of %10.0f\n", formula.name, steps,
              formula.steps, most, formula.bytes);
  EXPECT_EQ(steps, formula.steps);
  EXPECT_EQ(most_bytes(plans), formula.bytes);
  EXPECT_GE(most, formula.bytes);
  // Engines also send frames with each segment, and heartbeats for as long as it takes.
  EXPECT_LE(most, formula.bytes * 1.1 + 64 * 1024);
}

INSTANTIATE_TEST_SUITE_P(Of64Ranks, Steps, testing::ValuesIn(formulas()), [](const auto& tested) {
  return concat(name_of(tested.param.collective), "_", name_of(tested.param.algorithm));
});

}  // namespace
}  // namespace slipstream::test
