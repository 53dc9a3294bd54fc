#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "collective/choose.h"
#include "engine_world.h"
#include "topology/layout.h"

// Tests of group layouts, and of allreduces over their dimensions: results are right, equal on
// every rank, and no byte too many is sent between hosts and racks.
namespace slipstream::test {
namespace {

using Members = std::vector<std::uint32_t>;

/// `racks` x `hosts` x `local` ranks. If `scattered` is true, every other rank comes from the far
/// end, so that the ranks of a host are not neighbours by number.
std::vector<Place> grid(std::uint32_t local, std::uint32_t hosts, std::uint32_t racks,
                        bool scattered = false) {
  std::vector<Place> places;
  const std::uint32_t size = local * hosts * racks;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    const std::uint32_t host = scattered ? rank % (hosts * racks) : rank / local;
    places.push_back({"host " + std::to_string(host), "rack " + std::to_string(host / hosts)});
  }
  return places;
}

TEST(Layout, FindsRanksOfAHostHostsOfARackAndRacks) {
  const Layout layout = make_layout(grid(2, 3, 2), 7);
  ASSERT_EQ(layout.dimensions.size(), 3U);
  EXPECT_EQ(layout.dimensions[0].members, (Members{6, 7}));
  EXPECT_EQ(layout.dimensions[0].index, 1U);
  EXPECT_EQ(layout.dimensions[1].members, (Members{7, 9, 11}));
  EXPECT_EQ(layout.dimensions[1].index, 0U);
  EXPECT_EQ(layout.dimensions[2].members, (Members{1, 7}));
  EXPECT_EQ(layout.local.members, (Members{6, 7}));
  EXPECT_EQ(layout.hosts.members, (Members{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(layout.hosts.index, 3U);
}

TEST(Layout, RanksOfAHostNeedNotBeNeighboursByNumber) {
  const Layout layout = make_layout(grid(2, 3, 1, true), 4);
  EXPECT_EQ(layout.dimensions[0].members, (Members{1, 4}));
  EXPECT_EQ(layout.dimensions[1].members, (Members{3, 4, 5}));
}

TEST(Layout, OfUnevenHostsIsOneRingInTheirOrder) {
  const std::vector<Place> places = {{"a", ""}, {"b", ""}, {"a", ""}};
  const Layout layout = make_layout(places, 2);
  EXPECT_FALSE(layout.even);
  ASSERT_EQ(layout.dimensions.size(), 1U);
  EXPECT_EQ(layout.dimensions[0].members, (Members{0, 2, 1}));
  EXPECT_EQ(layout.local.members, Members{2});
}

TEST(Layout, UnevenRacksAreNoDimension) {
  const std::vector<Place> places = {{"a", "x"}, {"b", "x"}, {"c", "y"}};
  const Layout layout = make_layout(places, 1);
  EXPECT_TRUE(layout.even);
  ASSERT_EQ(layout.dimensions.size(), 1U);
  EXPECT_EQ(layout.dimensions[0].members, (Members{0, 1, 2}));
}

TEST(Layout, MayBeGiven) {
  const Members sizes{4, 2};
  const Layout layout = make_layout(grid(2, 4, 1), 6, sizes);
  ASSERT_EQ(layout.dimensions.size(), 2U);
  EXPECT_EQ(layout.dimensions[0].members, (Members{4, 5, 6, 7}));
  EXPECT_EQ(layout.dimensions[1].members, (Members{2, 6}));
  const Members wrong{3, 2};
  EXPECT_NE(error_of([&] {
              make_layout(grid(2, 4, 1), 6, wrong);
            }).find("SLIPSTREAM_DIMENSIONS multiply to 6 ranks, but the job has 8"),
            std::string::npos);
}

TEST(Layout, OfOneRankHasOneDimension) {
  EXPECT_EQ(make_layout(grid(1, 1, 1), 0).dimensions.size(), 1U);
}

/// The bytes that the ranks of one host or rack send to the others in an allreduce of `count`
/// floats.
std::uint64_t bytes_out(const std::vector<Place>& places, std::uint64_t count,
                        std::string Place::* of, const std::string& name, Algorithm algorithm) {
  std::uint64_t bytes = 0;
  for (std::uint32_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].*of != name) continue;
    const Layout layout = make_layout(places, rank);
    Shape shape;
    shape.collective = Collective::kAllreduce;
    shape.rank = rank;
    shape.size = static_cast<std::uint32_t>(places.size());
    shape.element_bytes = 4;
    shape.count = count;
    shape.layout = &layout;
    for (const Step& step : make_plan(shape, algorithm).steps) {
      const bool out = step.kind == Step::Kind::kSend && places[step.peer].*of != name;
      if (out) bytes += step.from.bytes;
    }
  }
  return bytes;
}

TEST(Dimensions, SendTheLeastBytesBeyondHostAndRack) {
  constexpr std::uint64_t kCount = 4800;
  constexpr std::uint64_t kBytes = 4 * kCount;
  const auto places = grid(2, 3, 2);
  const auto all = Algorithm::kDimensions;
  EXPECT_EQ(bytes_out(places, kCount, &Place::host, "host 4", all), 2 * kBytes * 5 / 6);
  EXPECT_EQ(bytes_out(places, kCount, &Place::rack, "rack 1", all), 2 * kBytes * 1 / 2);
  EXPECT_GT(bytes_out(places, kCount, &Place::host, "host 4", Algorithm::kRing),
            2 * kBytes * 5 / 6);
}

struct Case {
  std::uint32_t local, hosts, racks;
  bool scattered;
};

class DimensionsSweep : public testing::TestWithParam<Case> {};

TEST_P(DimensionsSweep, GiveTheSumAndTheSameBitsEverywhere) {
  const Case c = GetParam();
  const std::uint32_t size = c.local * c.hosts * c.racks;
  FakeOptions network;
  network.jitter = 20us;
  EngineOptions options;
  options.segment_bytes = 2048;
  options.eager_bytes = 512;
  options.algorithm = Algorithm::kDimensions;
  EngineWorld world(size, network, options, grid(c.local, c.hosts, c.racks, c.scattered));
  for (const std::uint64_t count : {0U, 1U, 37U, 3001U, 20000U}) {
    for (const bool in_place : {false, true}) {
      std::vector<std::vector<float>> outputs(size);
      world.each([&](EngineRank& self) {
        std::vector<float> input(count);
        for (std::uint64_t i = 0; i < count; ++i) {
          input[i] = 0.1F * static_cast<float>((i * 7 + self.rank * 13) % 101);
        }
        std::vector<float>& output = outputs[self.rank];
        output = in_place ? input : std::vector<float>(count, -1.0F);
        Request request;
        request.collective = Collective::kAllreduce;
        request.dtype = DType::kFloat32;
        request.op = ReduceOp::kAverage;
        request.count = count;
        request.input = in_place ? output.data() : input.data();
        request.output = output.data();
        self.run(request);
      });
      for (std::uint64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (std::uint32_t rank = 0; rank < size; ++rank) {
          sum += 0.1F * static_cast<float>((i * 7 + rank * 13) % 101);
        }
        ASSERT_NEAR(outputs[0][i], sum / static_cast<float>(size), 1e-5) << i << " of " << count;
      }
      for (const auto& output : outputs) {
        if (count == 0) break;  // no memory to compare
        ASSERT_EQ(std::memcmp(output.data(), outputs[0].data(), count * sizeof(float)), 0);
      }
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::to_string(c.local) + "x" + std::to_string(c.hosts) + "x" + std::to_string(c.racks) +
         (c.scattered ? "scattered" : "");
}

INSTANTIATE_TEST_SUITE_P(Grids, DimensionsSweep,
                         testing::Values(Case{1, 1, 1, false}, Case{4, 1, 1, false},
                                         Case{1, 5, 1, false}, Case{2, 2, 1, false},
                                         Case{2, 4, 1, true}, Case{3, 2, 1, false},
                                         Case{2, 2, 2, false}, Case{1, 3, 2, false},
                                         Case{2, 3, 2, true}),
                         name_of_case);

}  // namespace
}  // namespace slipstream::test
