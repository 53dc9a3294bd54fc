// Measures rounds of negotiation among up to 256 ranks, which are threads of this process, over
// links that delay every message. All ranks submit one tensor, and submit it again as soon as it is
// ready. With many more ranks than cores, the cores are the limit; a longer delay then shows the
// cost of the number of exchanges.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "negotiation/channel.h"
#include "negotiation/rounds.h"
#include "test/engine_world.h"
#include "test/negotiation_world.h"

namespace slipstream {
namespace {

constexpr std::uint32_t kMostRanks = 256;
constexpr int kRounds = 20;

EngineOptions engine_options(std::uint32_t ranks) {
  EngineOptions options;
  options.peer_timeout = 60s;
  if (ranks > std::thread::hardware_concurrency()) options.driver.spin = 0us;
  return options;
}

void round(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  FakeOptions network;
  network.delay = std::chrono::microseconds(state.range(1));
  test::EngineWorld world(ranks, network, engine_options(ranks));
  std::vector<std::unique_ptr<Channel>> channels(ranks);
  std::vector<std::unique_ptr<Rounds>> negotiations(ranks);
  const Submission one{test::tensor("x")};
  const auto run = [&](std::uint32_t rank, int times) {
    for (int i = 0; i < times; ++i) {
      negotiations[rank]->add({&one, 1}, Clock::now());
      while (negotiations[rank]->run().ready.empty()) {
      }
    }
  };
  world.each([&](test::EngineRank& self) {
    channels[self.rank] = std::make_unique<Channel>(*self.engine, *self.world);
    negotiations[self.rank] =
        std::make_unique<Rounds>(*channels[self.rank], NegotiationOptions{}, Log());
    run(self.rank, 2);  // the tensor is new in the first round
  });
  const std::uint64_t before = channels[0]->messages();
  std::uint64_t rounds = 0;
  for ([[maybe_unused]] const auto& iteration : state) {
    std::vector<double> spent(ranks);
    world.each([&](test::EngineRank& self) {
      run(self.rank, 1);  // threads are still starting until then
      const TimePoint begin = Clock::now();
      run(self.rank, kRounds);
      spent[self.rank] = seconds(Clock::now() - begin);
    });
    state.SetIterationTime(*std::ranges::max_element(spent) / kRounds);
    rounds += kRounds + 1;
  }
  state.counters["messages"] =
      static_cast<double>(channels[0]->messages() - before) / static_cast<double>(rounds);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t delay : {50, 5000}) {
    for (std::uint32_t ranks = 2; ranks <= kMostRanks; ranks *= 2) benchmark->Args({ranks, delay});
  }
}

BENCHMARK(round)
    ->Apply(sizes)
    ->ArgNames({"ranks", "delay_us"})
    ->Iterations(5)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace slipstream
