#include "slipstream/negotiation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "negotiation/channel.h"
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

/// Each rank submits all of `count` tensors `steps` times, in its own order.
void run_random_orders(NegotiationWorld& world, std::size_t count, std::size_t steps) {
  world.each([&](std::uint32_t rank, NegotiatingRank& self) {
    for (std::size_t step = 0; step < steps; ++step) {
      const std::size_t before = self.ready.size();
      std::vector<std::string> order = names(count);
      shuffle(order, 1000 * step + rank);
      std::map<std::string, std::uint64_t> tokens;
      for (std::size_t i = 0; i < count; ++i) {
        tokens[order[i]] = 7 * i + step;
        self.submit(order[i], 7 * i + step);
      }
      self.take_ready(before + count);
      for (std::size_t i = before; i < before + count; ++i) {
        EXPECT_EQ(self.agreed[i].token, tokens[self.ready[i]]);
      }
      std::vector<std::string> known(self.ready.begin() + static_cast<std::ptrdiff_t>(before),
                                     self.ready.end());
      std::ranges::sort(known);
      std::ranges::sort(order);
      EXPECT_EQ(known, order);
    }
  });
}

void expect_one_order(NegotiationWorld& world, std::uint32_t size) {
  for (std::uint32_t rank = 1; rank < size; ++rank) {
    EXPECT_EQ(world[rank].ready, world[0].ready);
    EXPECT_EQ(world[rank].rounds, world[0].rounds);
  }
}

std::shared_ptr<const TensorSpec> changed(const std::function<void(TensorSpec&)>& change) {
  TensorSpec spec = *tensor("x", {3, 4});
  change(spec);
  return std::make_shared<const TensorSpec>(std::move(spec));
}

/// The payload bytes that a rank has sent to all others, or to some.
std::uint64_t sent(
    NegotiationWorld& world, std::uint32_t from, std::uint32_t size,
    const std::function<bool(std::uint32_t)>& counts = [](auto) { return true; }) {
  std::uint64_t bytes = 0;
  for (std::uint32_t to = 0; to < size; ++to) {
    if (to != from && counts(to)) bytes += world.world.network().traffic(from, to).payload_bytes;
  }
  return bytes;
}

std::uint64_t received(NegotiationWorld& world, std::uint32_t to, std::uint32_t size) {
  std::uint64_t bytes = 0;
  for (std::uint32_t from = 0; from < size; ++from) {
    if (from != to) bytes += world.world.network().traffic(from, to).payload_bytes;
  }
  return bytes;
}

class Orders : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Orders, testing::Values(1, 2, 3, 4, 5, 7, 8, 11, 16, 19));

TEST_P(Orders, of_submission_differ_and_that_of_readiness_is_one) {
  FakeOptions network;
  network.jitter = 200us;
  NegotiationWorld world(GetParam(), {}, network);
  run_random_orders(world, 40, 3);
  expect_one_order(world, GetParam());
}

TEST_P(Orders, are_one_with_cycles_too) {
  NegotiationOptions options;
  options.cycle = 2ms;
  NegotiationWorld world(GetParam(), options);
  run_random_orders(world, 40, 2);
  expect_one_order(world, GetParam());
}

TEST(negotiation, tensors_that_are_known_travel_without_metadata) {
  NegotiationWorld world(4);
  run_random_orders(world, 50, 1);
  const NegotiationStats before = world[2].negotiator.stats();
  EXPECT_GE(before.introductions, 1U);
  EXPECT_EQ(before.known_tensors, 50U);
  run_random_orders(world, 50, 2);
  EXPECT_EQ(world[2].negotiator.stats().introductions, before.introductions);
  EXPECT_EQ(world[2].negotiator.stats().tensors, 150U);
}

TEST(negotiation, ten_thousand_tensors_become_ready) {
  NegotiationWorld world(3);
  run_random_orders(world, 10'000, 1);
  expect_one_order(world, 3);
}

TEST(negotiation, one_tensor_of_all_ranks_takes_one_round) {
  NegotiationOptions options;
  options.hold = 60s;  // on a busy machine, a rank may come late
  NegotiationWorld world(4, options);
  run_random_orders(world, 1, 21);
  const NegotiationStats stats = world[0].negotiator.stats();
  EXPECT_EQ(stats.rounds, 22U);  // one more to introduce it
}

struct Difference {
  const char* name;
  std::function<void(TensorSpec&)> change;
  const char* text;
};
class Mismatches : public testing::TestWithParam<Difference> {};
INSTANTIATE_TEST_SUITE_P(
    Of, Mismatches,
    testing::Values(
        Difference{"shape", [](TensorSpec& s) { s.shape = {3, 5}; }, "float32[3, 5]"},
        Difference{"rank", [](TensorSpec& s) { s.shape = {12}; }, "float32[12]"},
        Difference{"dtype", [](TensorSpec& s) { s.dtype = DType::kFloat16; }, "float16[3, 4]"},
        Difference{"op", [](TensorSpec& s) { s.op = ReduceOp::kMax; }, "allreduce max"},
        Difference{"codec", [](TensorSpec& s) { s.codec = Codec::kFp16; }, "as fp16"},
        Difference{"note", [](TensorSpec& s) { s.note = "scaled by 2"; }, "scaled by 2"},
        Difference{"collective", [](TensorSpec& s) { s.collective = Collective::kBroadcast; },
                   "broadcast float32[3, 4] root 0"}),
    [](const auto& each) { return std::string(each.param.name); });

TEST_P(Mismatches, fail_the_tensor_once_on_every_rank_and_say_who_passed_what) {
  NegotiationWorld world(4);
  const auto common = changed([](TensorSpec&) {});
  world.each([&](std::uint32_t rank, NegotiatingRank& self) {
    if (rank == 3) return;
    self.submit(rank == 1 ? changed(GetParam().change) : common);
    self.submit("innocent");
  });
  world[3].submit("innocent");
  world.each([&](std::uint32_t rank, NegotiatingRank& self) {
    self.take_ready(1);
    if (rank == 3) self.submit(common);  // too late, and fails all the same
    const std::string message = self.take_failure("x");
    EXPECT_NE(message.find("tensor 'x'"), std::string::npos) << message;
    EXPECT_NE(message.find("\n  rank 0: allreduce sum float32[3, 4]\n"), std::string::npos);
    const auto of_rank_1 = message.find("\n  rank 1: ");
    EXPECT_NE(message.find(GetParam().text, of_rank_1), std::string::npos) << message;
    EXPECT_NE(message.find("\n  rank 3: "), std::string::npos) << message;
    self.submit(common);
    self.take_ready(2);
    EXPECT_EQ(self.ready, (std::vector<std::string>{"innocent", "x"}));
  });
}

TEST(negotiation, a_tensor_may_change_on_all_ranks_alike) {
  NegotiationWorld world(3);
  world.each([&](std::uint32_t, NegotiatingRank& self) {
    for (std::int64_t size = 1; size < 20; ++size) {
      self.submit(tensor("batch", {size}));
      self.take_ready(static_cast<std::size_t>(size));
      EXPECT_EQ(self.agreed.back().tensor->shape, std::vector<std::int64_t>{size});
    }
    EXPECT_TRUE(self.failed.empty());
  });
}

TEST(negotiation, fused_tensors_are_ready_together_in_one_order) {
  NegotiationWorld world(3);
  world.each([&](std::uint32_t rank, NegotiatingRank& self) {
    for (std::size_t step = 1; step <= 10; ++step) {
      std::vector<std::function<void()>> calls{
          [&] { self.submit_fused({"a", "b", "c"}); }, [&] { self.submit_fused({"d", "e"}); },
          [&] { self.submit("f"); }, [&] { self.submit("g"); }};
      shuffle(calls, 10 * step + rank);
      for (const auto& call : calls) call();
      self.take_ready(7 * step);
      for (std::size_t i = 7 * (step - 1); i < 7 * step; ++i) {
        if (self.ready[i] != "a" && self.ready[i] != "b" && self.ready[i] != "c") continue;
        const std::size_t first = i - static_cast<std::size_t>(self.ready[i][0] - 'a');
        EXPECT_EQ(self.ready[first], "a");
        EXPECT_EQ(self.rounds[i], self.rounds[first]);
        EXPECT_NE(self.agreed[i].fused, 0U);
        EXPECT_EQ(self.agreed[i].fused, self.agreed[first].fused);
      }
    }
  });
  expect_one_order(world, 3);
}

TEST(negotiation, fused_and_single_do_not_match) {
  NegotiationWorld world(2);
  world[0].submit_fused({"a", "b"});
  world[1].submit("a");
  world[1].submit("b");
  for (const std::string name : {"a", "b"}) {
    EXPECT_NE(world[0].take_failure(name).find("rank 0: allreduce sum float32[256], fused with 1"),
              std::string::npos);
  }
  EXPECT_NE(world[1].take_failure("a").find("\n  rank 1: allreduce sum float32[256]\n"),
            std::string::npos);
}

TEST(negotiation, a_rank_that_has_joined_takes_part_without_data) {
  NegotiationWorld world(4);
  world.each([&](std::uint32_t rank, NegotiatingRank& self) {
    const std::size_t own = 10 + rank;  // rank 3 has most data
    for (std::size_t i = 0; i < own; ++i) {
      self.submit(concat("step ", i));
      self.take_ready(i + 1);
    }
    self.negotiator.join();
    EXPECT_THROW(self.submit("too late"), Error);
    while (!self.last_joined) ASSERT_TRUE(self.take());
    EXPECT_EQ(self.last_joined, 3U);
    EXPECT_EQ(self.ready.size(), 13U);
    for (std::size_t i = 0; i < 13; ++i) {
      EXPECT_EQ(self.agreed[i].submitted, i < own);
      EXPECT_EQ(self.some_joined[i], i >= 10);
    }
    self.submit("afterwards");
    self.take_ready(14);
    EXPECT_FALSE(self.some_joined[13]);
  });
  expect_one_order(world, 4);
}

TEST(negotiation, what_is_submitted_at_once_is_ready_in_one_round_but_for_what_is_wrong) {
  NegotiationOptions options;
  options.hold = 60s;  // no rank takes part in a round before it has submitted everything
  NegotiationWorld world(4, options);
  world.each([](std::uint32_t rank, NegotiatingRank& self) {
    for (int step = 0; step < 3; ++step) {
      std::vector<Submission> all;
      for (std::uint64_t i = 0; i < 100; ++i) {
        all.push_back({tensor(concat("gradient ", (i + 37 * rank) % 100)), i});
      }
      const auto before = self.negotiator.stats().rounds;
      std::vector<Submission> wrong = all;
      wrong.push_back(all.front());
      wrong.push_back({tensor("after the wrong one"), 100});
      const std::string error = error_of([&] { self.negotiator.submit_each(wrong); });
      EXPECT_NE(error.find("submitted again before it was ready"), std::string::npos) << error;
      self.take_ready(100);
      // One round in which they are ready, and at first another in which they are introduced.
      EXPECT_LE(self.negotiator.stats().rounds - before, 2U);
      self.ready.clear();
    }
  });
}

TEST(negotiation, a_rank_joins_when_what_it_has_submitted_is_ready) {
  NegotiationWorld world(2);
  world[0].submit("x");
  world[0].negotiator.join();
  world[1].negotiator.join();
  world.each([](std::uint32_t, NegotiatingRank& self) {
    while (!self.last_joined) ASSERT_TRUE(self.take());
    EXPECT_EQ(self.ready, std::vector<std::string>{"x"});
  });
  EXPECT_FALSE(world[1].agreed[0].submitted);
  EXPECT_EQ(world[0].last_joined, 0U);
  EXPECT_EQ(world[1].last_joined, 0U);
}

class Last : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Last, testing::Values(2, 3, 6, 11, 16));

TEST_P(Last, rank_finds_the_others_at_once) {
  const std::uint32_t size = GetParam();
  NegotiationOptions options;
  options.hold = 1ms;
  NegotiationWorld world(size, options);
  run_random_orders(world, 1, 1);
  std::size_t num_steps = 1;
  const auto take_seconds = [&](std::uint32_t last) {
    const TimePoint begin = Clock::now();
    // All others have announced before that they have it, and have nothing new.
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      if (rank != last) world[rank].submit("tensor 0");
    }
    const std::uint64_t round = world[last].negotiator.stats().rounds;
    const TimePoint limit = Clock::now() + kPatience;
    while (world[last].negotiator.stats().rounds == round && Clock::now() < limit) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(world[last == 0 ? 1 : 0].take(2ms));
    world[last].submit("tensor 0");
    ++num_steps;
    world.each([&](std::uint32_t, NegotiatingRank& self) { self.take_ready(num_steps); });
    return Clock::now() - begin;
  };
  for (std::uint32_t last = 0; last < size; ++last) {
    // The engine probes the others once a second, which would hide that nobody was woken. A busy
    // machine is slow, but not each time.
    int tries = 1;
    while (take_seconds(last) > 900ms && tries < 10) ++tries;
    EXPECT_LT(tries, 10) << "last: rank " << last;
  }
}

TEST(negotiation, what_waits_for_one_rank_sends_nothing_and_becomes_ready_with_it) {
  NegotiationOptions options;
  options.hold = 5ms;
  NegotiationWorld world(3, options);
  run_random_orders(world, 20, 1);
  for (const std::string& name : names(20)) {
    world[0].submit(name);
    world[1].submit(name);
  }
  const auto all_sent = [&] { return sent(world, 0, 3) + sent(world, 1, 3) + sent(world, 2, 3); };
  std::uint64_t before = all_sent() + 1;
  for (int tries = 0; tries < 20 && before != all_sent(); ++tries) {
    before = all_sent();
    EXPECT_FALSE(world[0].take(300ms));  // rounds that are held come to nothing
  }
  EXPECT_EQ(all_sent(), before);
  for (const std::string& name : names(20)) world[2].submit(name);
  world.each([](std::uint32_t, NegotiatingRank& self) { self.take_ready(40); });
  expect_one_order(world, 3);
}

TEST(negotiation, numbers_are_given_to_other_tensors_on_all_ranks_alike) {
  NegotiationOptions options;
  options.most_tensors = 16;
  NegotiationWorld world(3, options);
  world.each([&](std::uint32_t rank, NegotiatingRank& self) {
    for (std::size_t step = 0; step < 30; ++step) {
      std::vector<std::string> some = names(8);
      for (std::string& name : some) name += concat(" of step ", step);
      some.push_back("in every step");
      shuffle(some, 100 * step + rank);
      for (const std::string& name : some) self.submit(name);
      self.take_ready(9 * (step + 1));
    }
  });
  expect_one_order(world, 3);
  EXPECT_LE(world[0].negotiator.stats().known_tensors, 16U);
  const std::uint64_t introductions = world[0].negotiator.stats().introductions;
  world.each([&](std::uint32_t, NegotiatingRank& self) {
    self.submit("in every step");
    self.take_ready(30 * 9 + 1);
  });
  EXPECT_EQ(world[0].negotiator.stats().introductions, introductions);
}

TEST(negotiation, more_tensors_than_numbers_may_wait_at_a_time) {
  NegotiationOptions options;
  options.most_tensors = 4;
  NegotiationWorld world(4, options);
  run_random_orders(world, 100, 4);
  expect_one_order(world, 4);
}

TEST(negotiation, a_rank_that_is_gone_fails_what_waits_and_is_named) {
  NegotiationOptions options;
  options.hold = 5ms;
  NegotiationWorld world(4, options);
  run_random_orders(world, 5, 1);
  world[0].submit("new");
  world[1].submit("tensor 3");
  world.world.network().kill_rank(3);
  EXPECT_NE(world[0].take_failure("new").find("rank 3 ("), std::string::npos);
  EXPECT_NE(world[1].take_failure("tensor 3").find("tensor 'tensor 3': "), std::string::npos);
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    EXPECT_NE(error_of([&] {
                while (true) world[rank].submit("tensor 0"), world[rank].take();
              }).find("rank 3 ("),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                while (true) world[rank].take();
              }).find("rank 3 ("),
              std::string::npos);
  }
}

TEST(negotiation, a_rank_that_leaves_fails_what_waits_for_it) {
  NegotiationOptions options;
  options.hold = 5ms;
  NegotiationWorld world(3, options);
  run_random_orders(world, 5, 1);
  for (const std::string& name : names(5)) world[1].submit(name);
  world.leave(2);
  for (const std::string& name : names(5)) {
    EXPECT_NE(world[1].take_failure(name).find("rank 2"), std::string::npos);
  }
}

TEST(negotiation, what_waits_when_the_negotiator_is_closed_fails) {
  NegotiationWorld world(2);
  world[0].submit("x");
  world[0].negotiator.close();
  world[0].negotiator.close();
  EXPECT_NE(world[0].take_failure("x").find("tensor 'x': "), std::string::npos);
  EXPECT_THROW(world[0].take(), Error);
  EXPECT_THROW(world[0].submit("y"), Error);
}

TEST(negotiation, a_name_waits_once_at_a_time) {
  NegotiationWorld world(2);
  world[0].submit("x");
  const std::string message = error_of([&] { world[0].submit("x"); });
  EXPECT_NE(message.find("tensor 'x' was submitted again"), std::string::npos);
  EXPECT_THROW(world[0].submit(""), Error);
  EXPECT_THROW(world[0].submit_fused({"y", "x"}), Error);
  world[0].submit("y");
  world[1].submit("y");
  world[1].submit("x");
  world.each([](std::uint32_t, NegotiatingRank& self) { self.take_ready(2); });
}

TEST(negotiation, several_threads_submit_at_once) {
  NegotiationWorld world(3);
  world.each([&](std::uint32_t, NegotiatingRank& self) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&self, i] {
        for (int j = 0; j < 100; ++j) self.submit(concat("thread ", i, " tensor ", j));
      });
    }
    self.take_ready(400);
    for (std::thread& thread : threads) thread.join();
  });
  expect_one_order(world, 3);
}

TEST(negotiation, negotiations_of_two_groups_run_side_by_side) {
  EngineWorld world(4);
  std::vector<std::vector<std::string>> of_half(4);
  world.each([&](EngineRank& self) {
    const std::uint32_t first = self.rank / 2 * 2;
    const auto half = self.engine->make_group("half", {first, first + 1});
    Negotiator everybody(*self.engine, self.world, {}, {});
    Negotiator some(*self.engine, half, {}, {});
    for (int i = 0; i < 50; ++i) {
      const Submission one{tensor(concat("x", (i + 7 * self.rank) % 50))};
      everybody.submit({&one, 1});
      some.submit({&one, 1});
    }
    std::size_t ready = 0;
    while (ready < 50) ready += everybody.next(kPatience).value().ready.size();
    while (of_half[self.rank].size() < 50) {
      const Outcome outcome = some.next(kPatience).value();
      for (const auto& each : outcome.ready) of_half[self.rank].push_back(each.tensor->name);
    }
    self.run({Collective::kBarrier});
  });
  EXPECT_TRUE(of_half[0] == of_half[1] && of_half[2] == of_half[3]);
}

#if defined(__SANITIZE_THREAD__)  // which takes minutes for 128 ranks
constexpr std::uint32_t kManyRanks = 32;
#else
constexpr std::uint32_t kManyRanks = 128;
#endif
// If rank 0 of 128 ranks received and sent everything, it would handle 254 messages per round.
TEST(negotiation, no_rank_of_many_handles_more_messages_a_round_than_two_per_doubling) {
  constexpr std::uint32_t kRanks = kManyRanks, kMessages = 2 * (std::bit_width(kRanks) - 1);
  constexpr std::size_t kGradients = 161, kWords = 1 + (kGradients + 63) / 64;
  EngineOptions engine;  // otherwise so many threads are busy with heartbeats and spinning
  engine.peer_timeout = kPatience * 4;
  engine.driver.spin = 0us;
  NegotiationWorld world(kRanks, {}, {}, {}, engine);
  const auto run_step = [](std::uint32_t rank, NegotiatingRank& self) {
    std::vector<std::string> all = names(kGradients);
    shuffle(all, rank);
    const std::size_t before = self.ready.size();
    for (const std::string& name : all) self.submit(name);
    self.take_ready(before + kGradients);
  };
  world.each(run_step);
  std::vector<std::uint64_t> bytes(kRanks);
  std::vector<NegotiationStats> before(kRanks);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    bytes[rank] = sent(world, rank, kRanks) + received(world, rank, kRanks);
    before[rank] = world[rank].negotiator.stats();
  }
  world.each(run_step);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const NegotiationStats stats = world[rank].negotiator.stats();
    const std::uint64_t more = stats.rounds - before[rank].rounds;
    EXPECT_GT(more, 0U);
    EXPECT_EQ(stats.messages - before[rank].messages, kMessages * more);
    const auto handled = sent(world, rank, kRanks) + received(world, rank, kRanks) - bytes[rank];
    EXPECT_EQ(handled, kMessages * more * kWords * sizeof(std::uint64_t));
  }
}

TEST(negotiation, rounds_cross_between_hosts_no_more_often_than_hosts_need) {
  constexpr std::uint32_t kRanks = 16, kHosts = 4;
  std::vector<Place> places;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    places.push_back({concat("host ", rank % kHosts), ""});  // neighbours by rank are not by host
  }
  NegotiationWorld world(kRanks, {}, {}, places);
  run_random_orders(world, 1, 1);
  std::vector<std::uint64_t> before(kRanks), rounds(kRanks);
  const auto elsewhere = [&](std::uint32_t rank) {
    return sent(world, rank, kRanks, [&](auto to) { return to % kHosts != rank % kHosts; });
  };
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    before[rank] = elsewhere(rank);
    rounds[rank] = world[rank].negotiator.stats().rounds;
  }
  run_random_orders(world, 1, 10);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::uint64_t more = world[rank].negotiator.stats().rounds - rounds[rank];
    constexpr std::uint64_t kMessages = 2;  // log2 of the hosts, of two words each
    EXPECT_EQ(elsewhere(rank) - before[rank], more * kMessages * 2 * sizeof(std::uint64_t));
  }
}

/// The group in which the ranks of a negotiation exchange words and texts.
std::shared_ptr<Group> group_of_negotiation(EngineRank& self) {
  return self.engine->make_group("negotiation of world", {0, 1});
}

TEST(negotiation, a_text_that_is_too_long_is_refused_before_there_is_memory_for_it) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    if (self.rank == 0) {
      Channel channel(*self.engine, *self.world);
      EXPECT_NE(error_of([&] { channel.gather("text"); }).find("announces 1152921504606846976"),
                std::string::npos);
      return;
    }
    const auto group = group_of_negotiation(self);
    std::vector<char> block(1024), blocks(2048);
    const std::uint64_t announced = std::uint64_t{1} << 60U;
    std::memcpy(block.data(), &announced, sizeof announced);
    Request request;
    request.collective = Collective::kAllGather;
    request.input = block.data();
    request.output = blocks.data();
    request.receive_counts = {1024, 1024};
    self.run(group, request);
  });
}

}  // namespace
}  // namespace slipstream::test
