#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "cutting_relay.h"
#include "engine_world.h"
#include "tcp_world.h"

// Tests collectives and messages over TCP connections, without and with TLS, that a relay cuts
// after random numbers of bytes, also during their handshakes. Every result must have the same bits
// as over connections that nobody cuts. CUT_SEEDS, 1 by default, is the number of seeds; each cuts
// about a thousand times.
namespace slipstream::test {
namespace {

constexpr std::uint32_t kSize = 3;
constexpr std::uint64_t kCount = 24000;  // elements: a codec is used from 32 KB on
constexpr int kOperations = 24;

using Values = std::vector<float>;

std::uint64_t num_seeds() {
  const char* const text = std::getenv("CUT_SEEDS");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

Values values_of(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  Values values(count);
  for (float& value : values) value = static_cast<float>(random() % 2003) / 1001.0F - 1.0F;
  return values;
}

/// The random operation `index`, which is the same on every rank.
Request operation(std::uint64_t seed, int index) {
  std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(index));
  constexpr Collective kCollectives[] = {Collective::kAllreduce,     Collective::kAllreduce,
                                         Collective::kReduceScatter, Collective::kAllGather,
                                         Collective::kBroadcast,     Collective::kAllToAll};
  constexpr Algorithm kAlgorithms[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kDirect};
  constexpr Codec kCodecs[] = {Codec::kNone, Codec::kFp16, Codec::kBf16, Codec::kInt8};
  Request request;
  request.collective = kCollectives[random() % std::size(kCollectives)];
  request.dtype = DType::kFloat32;
  request.count = random() % 4 == 0 ? random() % 100 : kCount;
  request.root = static_cast<std::uint32_t>(random() % kSize);
  if (request.collective == Collective::kAllreduce) {
    request.codec = kCodecs[random() % std::size(kCodecs)];
  }
  if (request.codec == Codec::kNone && request.collective != Collective::kAllToAll) {
    request.algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
  }
  return request;
}

std::size_t input_blocks(Collective collective) {
  const bool all = collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  return all ? kSize : 1;
}
std::size_t output_blocks(Collective collective) {
  const bool all = collective == Collective::kAllGather || collective == Collective::kAllToAll;
  return all ? kSize : 1;
}

/// Runs the operations of a seed, up to four at a time, and returns their outputs.
std::vector<Values> run_all(EngineRank& self, std::uint64_t seed) {
  std::vector<Values> inputs, outputs;
  std::vector<std::shared_ptr<Completion>> pending;
  for (int i = 0; i < kOperations; ++i) {
    Request request = operation(seed, i);
    inputs.push_back(values_of(seed * 100 + static_cast<std::uint64_t>(i) * kSize + self.rank,
                               request.count * input_blocks(request.collective)));
    outputs.emplace_back(request.count * output_blocks(request.collective));
  }
  for (int i = 0; i < kOperations; ++i) {
    const auto at = static_cast<std::size_t>(i);
    Request request = operation(seed, i);
    const bool in_place = request.collective == Collective::kBroadcast;
    if (in_place) outputs[at] = inputs[at];
    request.input = in_place ? outputs[at].data() : inputs[at].data();
    request.output = outputs[at].data();
    pending.push_back(self.engine->submit(self.world, std::move(request)));
    if (i % 4 == 3) {
      for (const auto& each : pending) self.finish(*each);
      pending.clear();
    }
  }
  return outputs;
}

/// Sends messages around the ring of ranks and returns those that arrived.
std::vector<Values> exchange_messages(EngineRank& self, std::uint64_t seed) {
  std::vector<Values> sent, received;
  std::vector<std::shared_ptr<Completion>> pending;
  for (std::uint32_t i = 0; i < 8; ++i) {
    const std::size_t count = i % 2 == 0 ? 50 : 5000;
    sent.push_back(values_of(seed + self.rank * 100 + i, count));
    received.emplace_back(count);
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    Request request;
    request.dtype = DType::kFloat32;
    request.count = sent[i].size();
    request.tag = static_cast<std::uint32_t>(i);
    request.collective = Collective::kSend;
    request.root = (self.rank + 1) % kSize;
    request.input = sent[i].data();
    pending.push_back(self.engine->submit(self.world, request));
    request.collective = Collective::kReceive;
    request.root = (self.rank + kSize - 1) % kSize;
    request.input = nullptr;
    request.output = received[i].data();
    pending.push_back(self.engine->submit(self.world, request));
  }
  for (const auto& each : pending) self.finish(*each);
  return received;
}

std::vector<Place> own_hosts() {
  std::vector<Place> places;
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    places.push_back({"host " + std::to_string(rank), ""});
  }
  return places;
}

EngineOptions small() {
  EngineOptions options;
  options.segment_bytes = 8192;
  options.eager_bytes = 512;
  return options;
}

/// The outputs of all ranks over one kind of transport.
std::vector<std::vector<Values>> results_over(const TransportFamily& family, std::uint64_t seed) {
  std::vector<std::vector<Values>> results(kSize);
  EngineWorld world(kSize, family, small(), own_hosts());
  world.each([&](EngineRank& self) {
    results[self.rank] = run_all(self, seed);
    for (Values& each : exchange_messages(self, seed))
      results[self.rank].push_back(std::move(each));
  });
  return results;
}

class Cut : public testing::TestWithParam<bool> {};

TEST_P(Cut, ResultsAreThoseOfWholeConnections) {
  TcpOptions plain;
  plain.num_streams = 2;
  plain.reconnects = true;
  TcpOptions options = plain;
  options.tls = GetParam();
  for (std::uint64_t seed = 1; seed <= num_seeds(); ++seed) {
    const auto relay = std::make_shared<CuttingRelay>(seed, 60'000.0);
    const auto results = results_over(cut_family(options, relay), seed);
    EXPECT_EQ(results, results_over(tcp_family("tcp", plain), seed)) << "seed " << seed;
    EXPECT_GT(relay->num_cuts(), 20U);
    RecordProperty("cuts of seed " + std::to_string(seed), std::to_string(relay->num_cuts()));
  }
}

INSTANTIATE_TEST_SUITE_P(Tcp, Cut, testing::Bool(),
                         [](const auto& test) { return test.param ? "Tls" : "Plain"; });

}  // namespace
}  // namespace slipstream::test
