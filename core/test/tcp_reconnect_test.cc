#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cutting_relay.h"
#include "tcp_world.h"

// Tests that lost streams are opened again, and that a process which is gone is found at once.
namespace slipstream::test {
namespace {

constexpr double kNever = 1e15;  // bytes until the relay cuts by itself

TcpOptions reconnecting(bool tls) {
  TcpOptions options;
  options.tls = tls;
  options.num_streams = 2;
  options.reconnects = true;
  return options;
}

/// Two connected ranks, without and with TLS, between which a relay stands.
class Reconnect : public testing::TestWithParam<bool> {
 protected:
  Reconnect() : world(cut_family(reconnecting(GetParam()), relay), 2) {}

  /// Cuts all connections, and waits until both ranks have open streams again.
  void cut_and_heal() {
    const std::size_t before = num_opened(0);
    relay->cut_all();
    const std::size_t all = before + world.num_streams();
    ASSERT_TRUE(world.poll_until([&] { return num_opened(0) >= all && num_opened(1) >= all; }));
    ASSERT_TRUE(
        world.poll_until([&] { return world[0].sink.lost.empty() && world[1].sink.lost.empty(); }));
  }
  [[nodiscard]] std::size_t num_opened(std::uint32_t rank) const {
    std::size_t sum = 0;
    for (const auto& [stream, times] : world[rank].sink.opened) sum += times;
    return sum;
  }
  /// Ends a rank's process, as far as its peer can see, and returns the peer's finding.
  std::string finding_without(std::uint32_t rank) {
    world[rank].transport->close();
    TransportRank& other = world[1 - rank];
    const TimePoint begin = Clock::now();
    EXPECT_TRUE(other.drive_until([&] { return !other.sink.unreachable_peers.empty(); }));
    EXPECT_LT(seconds(Clock::now() - begin), 5.0);
    return other.sink.unreachable_peers[rank];
  }

  const std::shared_ptr<CuttingRelay> relay = std::make_shared<CuttingRelay>(1, kNever);
  TransportWorld world;
};

TEST_P(Reconnect, StreamsAreOpenedAgainAndCarryMessages) {
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t tag = world[0].link(1).tag(1);
    EXPECT_EQ(tag, world[1].link(0).tag(1));
    cut_and_heal();
    EXPECT_NE(world[0].link(1).tag(1), tag);
    EXPECT_EQ(world[0].link(1).tag(1), world[1].link(0).tag(1));
    for (std::uint32_t stream = 0; stream < world.num_streams(); ++stream) {
      world.send(0, 1, stream, 5000);
      world.send(1, 0, stream, 70000);
    }
    EXPECT_TRUE(world.poll_until([&] { return world.all_arrived(); }));
    world.expect_equal();
  }
}

TEST_P(Reconnect, AProcessThatIsGoneIsFoundByTheRankThatDials) {
  EXPECT_NE(finding_without(0).find("nobody listens"), std::string::npos);
}

TEST_P(Reconnect, AProcessThatIsGoneIsFoundByTheRankThatKnocks) {
  EXPECT_NE(finding_without(1).find("nobody listens"), std::string::npos);
}

TEST_P(Reconnect, ARankThatWasGivenUpStaysOut) {
  world[0].link(1).give_up();
  relay->cut_all();
  TransportRank& higher = world[1];
  ASSERT_TRUE(world.poll_until([&] { return !higher.sink.unreachable_peers.empty(); }));
  EXPECT_EQ(higher.sink.unreachable_peers[0], "refused: rank 0 has given up rank 1");
  EXPECT_FALSE(world[0].link(1).alive(0));
  EXPECT_TRUE(world[0].sink.unreachable_peers.empty());
}

INSTANTIATE_TEST_SUITE_P(Tcp, Reconnect, testing::Bool(),
                         [](const auto& test) { return test.param ? "Tls" : "Plain"; });

}  // namespace
}  // namespace slipstream::test
