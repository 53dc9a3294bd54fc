// Messages through the tables of all versions, in one process.

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "slipstream/error.h"
#include "world.h"

namespace slipstream::nccl::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

/// "V11Threads2"
std::string name_of(const std::tuple<int, int>& version_and_threads) {
  const auto [version, threads] = version_and_threads;
  return concat("V", version, "Threads", threads);
}

class EveryVersion : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  EveryVersion() : net(version(), threads()) {
    EXPECT_EQ(net.init(), Result::kSuccess) << logged();
  }
  static int version() { return std::get<0>(GetParam()); }
  static int threads() { return std::get<1>(GetParam()); }
  Net net;
};
INSTANTIATE_TEST_SUITE_P(Tables, EveryVersion,
                         testing::Combine(testing::Values(8, 9, 10, 11), testing::Values(0, 2)),
                         [](const auto& chosen) { return name_of(chosen.param); });

TEST_P(EveryVersion, HasADeviceForHostMemory) {
  int count = 0;
  EXPECT_EQ(net.devices(&count), Result::kSuccess);
  EXPECT_EQ(count, 1);
  const PropertiesV11 all = net.properties(0);
  EXPECT_STREQ(all.common.name, "lo");
  EXPECT_EQ(all.common.pointers, kHostPointers);
  EXPECT_EQ(all.common.max_receives, 1);
  EXPECT_GT(all.common.speed, 0);
  EXPECT_GE(all.common.max_comms, 1000);
  if (version() >= 9) {
    EXPECT_EQ(all.common.parts.num_devices, 1);
    EXPECT_EQ(all.common.parts.devices[0], 0);
    EXPECT_GE(all.common.max_message_bytes, std::size_t{1} << 30U);
  }
  if (version() == 11) {
    EXPECT_EQ(all.max_grouped_requests, 1);
  }
}

TEST_P(EveryVersion, SendsARingOfEverySize) {
  constexpr std::size_t kRanks = 3;
  std::vector<std::unique_ptr<Pair>> links;  // link i leads from rank i to its successor
  for (std::size_t i = 0; i < kRanks; ++i) links.push_back(std::make_unique<Pair>(net));
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, kMiB + 1}) {
    std::vector<std::vector<std::byte>> received(kRanks, std::vector<std::byte>(size));
    std::vector<void*> requests;
    for (std::size_t i = 0; i < kRanks; ++i) {
      requests.push_back(links[i]->receive(received[i]));
      requests.push_back(links[i]->send(noise(size, i)));
    }
    const std::vector<int> bytes = finish(net, requests);
    EXPECT_EQ(bytes, std::vector<int>(requests.size(), static_cast<int>(size)));
    for (std::size_t i = 0; i < kRanks; ++i) {
      EXPECT_TRUE(same(received[i], noise(size, i))) << size << " bytes, link " << i;
    }
  }
}

class LargeMessage : public EveryVersion {};
/// Sizes are of type int in v8 and of type size_t in later versions.
INSTANTIATE_TEST_SUITE_P(Tables, LargeMessage, testing::Values(std::tuple(8, 0), std::tuple(11, 2)),
                         [](const auto& chosen) { return name_of(chosen.param); });

TEST_P(LargeMessage, IsReceivedWhole) {
  const Pair pair(net);
  pair.exchange(noise(32 * kMiB), 32 * kMiB);
}

TEST_P(EveryVersion, ReportsTheSizeOfASmallerMessage) {
  const Pair pair(net);
  pair.exchange(noise(10), 4096);
  pair.exchange(noise(0), 4096);
  pair.exchange(noise(kMiB), 3 * kMiB);
}

TEST_P(EveryVersion, KeepsTheOrderOf32RequestsInFlight) {
  const Pair pair(net);
  constexpr std::size_t kSize = 70'000;
  std::vector<std::vector<std::byte>> received(kMaxRequests, std::vector<std::byte>(kSize));
  std::vector<void*> requests;
  for (std::size_t i = 0; i < kMaxRequests; ++i) requests.push_back(pair.send(noise(kSize - i, i)));
  EXPECT_EQ(pair.send(noise(1)), nullptr) << "32 are open: call again";
  for (auto& each : received) requests.push_back(pair.receive(each));
  EXPECT_EQ(pair.receive(received[0]), nullptr);
  const std::vector<int> bytes = finish(net, requests);
  for (std::size_t i = 0; i < kMaxRequests; ++i) {
    EXPECT_EQ(bytes[kMaxRequests + i], static_cast<int>(kSize - i));
    EXPECT_TRUE(same(std::span(received[i]).first(kSize - i), noise(kSize - i, i)));
  }
  pair.exchange(noise(100), 100);
}

TEST_P(EveryVersion, ServesManyCommsAtOnce) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 24; ++i) pairs.push_back(std::make_unique<Pair>(net));
  std::vector<std::vector<std::byte>> received(pairs.size(), std::vector<std::byte>(300'000));
  std::vector<void*> requests;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    requests.push_back(pairs[i]->receive(received[i]));
    requests.push_back(pairs[i]->send(noise(300'000, i)));
  }
  finish(net, requests);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_TRUE(same(received[i], noise(300'000, i)));
  }
}

TEST_P(EveryVersion, MayBeClosedAtOnceAfterTheLastMessage) {
  for (int i = 0; i < 20; ++i) {
    Pair pair(net);
    std::vector<std::byte> received(400'000);
    void* const receiving = pair.receive(received);
    void* const sending = pair.send(noise(received.size()));
    bool sent = false;
    until([&] {
      sent = sent || test_once(net, sending).done;
      return test_once(net, receiving).done;
    });
    pair.close_receiver();
    if (!sent) finish(net, {sending});  // the receiver had acknowledged everything
  }
}

TEST_P(EveryVersion, RefusesWhatItCannotDo) {
  const Pair pair(net);
  void* request = nullptr;
  EXPECT_EQ(net.receive_two(nullptr, &request), Result::kInvalidUsage);
  constexpr int kCudaPointers = 2;
  EXPECT_EQ(net.register_memory(nullptr, nullptr, 1, kCudaPointers, &request),
            Result::kInvalidUsage);
  EXPECT_EQ(net.register_memory(nullptr, nullptr, 1, kHostPointers, &request), Result::kSuccess);
  EXPECT_EQ(net.flush(nullptr, 1, nullptr, nullptr, nullptr, &request), Result::kSuccess);
  EXPECT_EQ(request, nullptr) << "there is nothing to flush";
}

}  // namespace
}  // namespace slipstream::nccl::test
