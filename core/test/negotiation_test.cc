#include "slipstream/negotiation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "test/negotiation_world.h"

namespace slipstream::test {
namespace {

std::vector<std::string> names(std::size_t count) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(concat("tensor ", i));
  return all;
}

template <typename Item>
void shuffle(std::vector<Item>& items, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::shuffle(items.begin(), items.end(), random);
}

/// Each rank submits `steps` times all of `count` tensors in an order of its own.
void run_random_orders(NegotiationWorld& world, std::size_t count, std::size_t steps) {
  world.each([&](std::uint32_t rank, NegotiatingRank& self) {
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<std::string> order = names(count);
      shuffle(order, 1000 * step + rank);
      for (std::size_t i = 0; i < count; ++i) self.submit(order[i], 7 * i + step);
      self.take_ready(count * (step + 1));
      std::vector<std::string> known(self.ready.end() - static_cast<std::ptrdiff_t>(count),
                                     self.ready.end());
      for (std::size_t i = 0; i < count; ++i) {
        const auto at = std::ranges::find(order, known[i]) - order.begin();
        EXPECT_EQ(self.agreed[step * count + i].token, 7 * static_cast<std::size_t>(at) + step);
      }
      std::ranges::sort(known);
      std::ranges::sort(order);
      EXPECT_EQ(known, order);
    }
  });
}

class Orders : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Orders, testing::Values(1, 2, 3, 4, 5, 7, 8, 11, 16));

TEST_P(Orders, of_submission_differ_and_that_of_readiness_is_one) {
  FakeOptions network;
  network.jitter = 200us;
  NegotiationWorld world(GetParam(), {}, network);
  run_random_orders(world, 40, 3);
  for (std::uint32_t rank = 1; rank < GetParam(); ++rank) {
    EXPECT_EQ(world[rank].ready, world[0].ready);
    EXPECT_EQ(world[rank].rounds, world[0].rounds);
  }
}

TEST(negotiation, tensors_that_are_known_travel_without_metadata) {
  NegotiationWorld world(4);
  run_random_orders(world, 50, 1);
  const NegotiationStats before = world[2].negotiator.stats();
  EXPECT_GE(before.introductions, 1U);
  EXPECT_EQ(before.known_tensors, 50U);
  run_random_orders(world, 50, 1);
}

}  // namespace
}  // namespace slipstream::test
