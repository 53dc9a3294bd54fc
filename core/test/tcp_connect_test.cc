#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/address.h"
#include "slipstream/error.h"
#include "test/tcp_world.h"
#include "topology/interfaces.h"

namespace slipstream::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The results for the peers of one rank.
class Outcome final : public Sink {
 public:
  void connected(std::uint32_t peer, Link& link) override { links[peer] = &link; }
  void refused(std::uint32_t peer, const std::string& reason) override { reasons[peer] = reason; }
  std::byte* place(std::uint32_t, const Frame&) override { return nullptr; }
  void arrived(std::uint32_t, std::uint32_t, const Frame&, std::span<const std::byte>) override {
    ++num_frames;
  }
  void stream_lost(std::uint32_t, std::uint32_t, const std::string&) override { ++num_lost; }

  std::map<std::uint32_t, Link*> links;
  std::map<std::uint32_t, std::string> reasons;
  int num_frames = 0;
  int num_lost = 0;
};

/// A rank whose transport a test configures, with its log.
struct Rank {
  explicit Rank(const Identity& self, TcpOptions options = {}) {
    options.log = Log([this](LogLevel, const std::string& record) { log.push_back(record); });
    tcp = std::make_unique<TcpTransport>(self, std::move(options));
  }
  bool poll() { return tcp->poll(outcome); }
  [[nodiscard]] std::string endpoint() const { return tcp->endpoints().at(0); }
  [[nodiscard]] std::size_t num_logged(const std::string& part) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(log, [&](const auto& record) { return contains(record, part); }));
  }

  std::vector<std::string> log;
  Outcome outcome;
  std::unique_ptr<TcpTransport> tcp;
};

bool poll_until(std::initializer_list<Rank*> ranks, const std::function<bool()>& condition) {
  const TimePoint deadline = Clock::now() + kPatience;
  while (!condition()) {
    for (Rank* const rank : ranks) rank->poll();
    if (Clock::now() >= deadline) return false;
  }
  return true;
}

bool connects(Rank& lower, Rank& higher) {
  return poll_until({&lower, &higher},
                    [&] { return !lower.outcome.links.empty() && !higher.outcome.links.empty(); });
}

std::string refusal(Rank& lower, Rank& higher) {
  EXPECT_TRUE(poll_until({&lower, &higher}, [&] { return !higher.outcome.reasons.empty(); }));
  EXPECT_TRUE(lower.outcome.links.empty());
  EXPECT_TRUE(higher.outcome.links.empty());
  return higher.outcome.reasons[0];
}

/// A port of 127.0.0.1 on which nobody listens.
std::string free_endpoint() { return Rank(identity(0, 1)).endpoint(); }

TEST(TcpConnect, AWrongKeyIsRefusedOnBothEnds) {
  Rank lower(identity(0, 2));
  Identity other = identity(1, 2);
  other.key = job_key(2);
  Rank higher(other);
  higher.tcp->dial(0, {lower.endpoint()});
  const std::string reason = refusal(lower, higher);
  EXPECT_TRUE(contains(reason, "rank 0 cannot be reached")) << reason;
  EXPECT_TRUE(contains(reason, lower.endpoint() + " did not prove the job key")) << reason;
  EXPECT_TRUE(poll_until({&lower}, [&] { return !lower.log.empty(); }));
  EXPECT_EQ(lower.num_logged("refused a connection: 127.0.0.1:"), 1U);
}

TEST(TcpConnect, AnotherEpochIsRefusedByName) {
  Rank lower(identity(0, 2));
  Identity stale = identity(1, 2);
  stale.epoch = 6;
  Rank higher(stale);
  higher.tcp->dial(0, {lower.endpoint()});
  EXPECT_TRUE(contains(refusal(lower, higher), "is of epoch 6, rank 0 is in epoch 7"));
  EXPECT_EQ(lower.num_logged("is of epoch 6, rank 0 is in epoch 7"), 1U);
}

TEST(TcpConnect, EndpointsAreTriedInOrderUntilOneIsThePeer) {
  Rank lower(identity(0, 3));
  Rank other(identity(1, 3));
  Rank higher(identity(2, 3), {.num_streams = 3});
  higher.tcp->dial(0, {free_endpoint(), other.endpoint(), "nonsense", lower.endpoint()});
  EXPECT_TRUE(poll_until({&lower, &other, &higher}, [&] {
    return !lower.outcome.links.empty() && !higher.outcome.links.empty();
  }));
  EXPECT_EQ(higher.outcome.links.at(0)->num_streams(), 4U);
  EXPECT_EQ(lower.outcome.links.at(2)->num_streams(), 4U) << "the dialler's number counts";
  EXPECT_TRUE(contains(higher.outcome.links.at(0)->describe(), lower.endpoint()));
  EXPECT_EQ(other.num_logged("the connection is for rank 0, this is rank 1"), 1U);
}

TEST(TcpConnect, AListenerThatComesLaterIsFound) {
  const std::string endpoint = free_endpoint();
  Rank higher(identity(1, 2));
  higher.tcp->dial(0, {endpoint});
  const TimePoint later = Clock::now() + 30ms;
  EXPECT_TRUE(poll_until({&higher}, [&] { return Clock::now() >= later; }));
  EXPECT_TRUE(higher.outcome.reasons.empty());
  Rank lower(identity(0, 2), {.bind = {endpoint}});
  EXPECT_EQ(lower.endpoint(), endpoint);
  EXPECT_TRUE(connects(lower, higher));
}

TEST(TcpConnect, NobodyThereIsToldAtTheDeadline) {
  const std::string endpoint = free_endpoint();
  Rank higher(identity(1, 2), {.connect_deadline = 100ms});
  const TimePoint start = Clock::now();
  higher.tcp->dial(0, {endpoint});
  Rank bystander(identity(0, 2));
  const std::string reason = refusal(bystander, higher);
  EXPECT_GE(Clock::now() - start, 100ms);
  EXPECT_EQ(reason, "rank 0 cannot be reached (tried for at most 0.1 s); " + endpoint +
                        " did not accept the connection: Connection refused");
}

TEST(TcpConnect, EndpointsThatAreNoneAreToldAtOnce) {
  Rank bystander(identity(0, 2));
  const TimePoint start = Clock::now();
  Rank first(identity(1, 2));
  first.tcp->dial(0, {"example.com:80", "10.0.0.1"});
  const std::string reason = refusal(bystander, first);
  EXPECT_TRUE(contains(reason, "; example.com:80 is not an address with a port")) << reason;
  EXPECT_TRUE(contains(reason, "; 10.0.0.1 is not an address with a port")) << reason;
  Rank second(identity(1, 2));
  second.tcp->dial(0, {});
  EXPECT_TRUE(contains(refusal(bystander, second), "it has published no address"));
  EXPECT_LT(Clock::now() - start, 10s) << "not the deadline";
}

TEST(TcpConnect, StrangersDoNotDisturb) {
  Rank lower(identity(0, 2), {.num_streams = 4});
  std::vector<Descriptor> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to(lower.endpoint()));
  for (int i = 0; i < 20; ++i) {
    const Descriptor loud = connect_to(lower.endpoint());
    EXPECT_GT(::send(loud.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 0);
  }
  Rank higher(identity(1, 2), {.num_streams = 4});
  higher.tcp->dial(0, {lower.endpoint()});
  EXPECT_TRUE(connects(lower, higher));
  // The oldest were dropped for newer ones; the remaining ones are within the limit.
  EXPECT_TRUE(is_ended(silent.front()));
  EXPECT_LE(std::ranges::count_if(silent, [](const auto& each) { return !is_ended(each); }), 64);
  EXPECT_GE(lower.log.size(), 3U);
  EXPECT_LE(lower.log.size(), 9U) << "the log is limited";
  EXPECT_GE(lower.num_logged("refused a connection: 127.0.0.1:"), 3U);
}

TEST(TcpConnect, StrangersAreRefusedAfterwardsToo) {
  Rank lower(identity(0, 2), {.handshake_deadline = 50ms});
  Rank higher(identity(1, 2));
  higher.tcp->dial(0, {lower.endpoint()});
  ASSERT_TRUE(connects(lower, higher));
  const Descriptor silent = connect_to(lower.endpoint());
  const Descriptor loud = connect_to(lower.endpoint());
  EXPECT_GT(::send(loud.get(), "SSH-2.0-OpenSSH\r\n", 17, MSG_NOSIGNAL), 0);
  const auto refused = [&] { return is_ended(silent) && is_ended(loud); };
  EXPECT_TRUE(poll_until({&lower}, refused));
  EXPECT_EQ(lower.num_logged("sent nothing within 0.05 s"), 1U);
  EXPECT_EQ(lower.num_logged("it began with 'SSH-2.0-'"), 1U);
  Frame frame;
  frame.kind = FrameKind::kHeartbeat;
  EXPECT_TRUE(higher.outcome.links.at(0)->send(0, frame, {}));
  EXPECT_TRUE(poll_until({&lower}, [&] { return lower.outcome.num_frames == 1; }));
  EXPECT_EQ(lower.outcome.num_lost, 0);
}

TEST(TcpConnect, ASecondConnectionOfTheSameRankIsRefused) {
  Rank lower(identity(0, 2));
  Rank first(identity(1, 2));
  first.tcp->dial(0, {lower.endpoint()});
  ASSERT_TRUE(connects(lower, first));
  Rank second(identity(1, 2));
  second.tcp->dial(0, {lower.endpoint()});
  EXPECT_TRUE(poll_until({&lower, &second}, [&] { return !second.outcome.reasons.empty(); }));
  EXPECT_TRUE(contains(second.outcome.reasons[0], "refused: rank 1 is connected already"));
  EXPECT_TRUE(lower.outcome.links.at(1)->alive(0));
  EXPECT_TRUE(lower.outcome.links.at(1)->alive(1));
}

TEST(TcpConnect, ALowerRankThatCallsAndStreamsWithoutMeasureAreRefused) {
  Rank upper(identity(1, 3));
  const auto open = [&](std::uint32_t from, std::uint16_t num_streams) -> std::string {
    Identity self = identity(from, 3);
    try {
      const RawPeer peer(self, 1, upper.endpoint(), [&] { upper.poll(); }, num_streams, 1);
    } catch (const Error& error) {
      return error.what();
    }
    return "connected";
  };
  EXPECT_TRUE(contains(open(0, 2), "rank 0 connected to rank 1; the higher rank must"));
  EXPECT_TRUE(contains(open(2, 1), "1 streams were requested; allowed: 2 to 65"));
  EXPECT_TRUE(contains(open(2, 66), "66 streams were requested; allowed: 2 to 65"));
  EXPECT_EQ(open(2, 65), "connected");
}

TEST(TcpConnect, APeerThatOpensSomeOfItsStreamsIsGivenUp) {
  Rank lower(identity(0, 2), {.connect_deadline = 500ms});
  const RawPeer peer(identity(1, 2), 0, lower.endpoint(), [&] { lower.poll(); }, 3, 2);
  EXPECT_TRUE(poll_until({&lower}, [&] { return peer.ended(0) && peer.ended(1); }));
  EXPECT_EQ(lower.num_logged("rank 1 opened only some of its 3 streams"), 1U);
  EXPECT_TRUE(lower.outcome.links.empty());
  EXPECT_EQ(lower.tcp->next_event(), TimePoint::max()) << "nothing is left to be done";
}

TEST(TcpConnect, APeerThatStartsAgainWithOtherStreamsIsTaken) {
  Rank lower(identity(0, 2));
  const RawPeer gave_up(identity(1, 2), 0, lower.endpoint(), [&] { lower.poll(); }, 5, 2);
  Rank higher(identity(1, 2));
  higher.tcp->dial(0, {lower.endpoint()});
  EXPECT_TRUE(connects(lower, higher));
  EXPECT_EQ(lower.outcome.links.at(1)->num_streams(), 2U);
}

TEST(TcpConnect, LinkLocalAddressesAreDialledWithTheScopeOfThisHost) {
  const auto addresses = list_interfaces();
  const auto found = std::ranges::find_if(addresses, [](const auto& each) {
    return each.up && each.address.family() == AF_INET6 && each.address.is_link_local();
  });
  if (found == addresses.end()) GTEST_SKIP() << "no interface has a link-local IPv6 address";
  Rank lower(identity(0, 2), {.bind = {found->address.host()}});
  Rank higher(identity(1, 2), {.bind = {found->address.host()}});
  EXPECT_FALSE(contains(lower.endpoint(), "%")) << lower.endpoint();
  higher.tcp->dial(0, {lower.endpoint()});
  EXPECT_TRUE(connects(lower, higher));
}

TEST(TcpConnect, SeveralAddressesAreListenedOn) {
  Rank lower(identity(0, 3), {.bind = {"127.0.0.1", "::1"}});
  ASSERT_EQ(lower.tcp->endpoints().size(), 2U);
  Rank first(identity(1, 3));
  Rank second(identity(2, 3));
  first.tcp->dial(0, {lower.tcp->endpoints()[0]});
  second.tcp->dial(0, {lower.tcp->endpoints()[1]});
  EXPECT_TRUE(poll_until({&lower, &first, &second}, [&] {
    return lower.outcome.links.size() == 2 && !first.outcome.links.empty() &&
           !second.outcome.links.empty();
  }));
}

/// Such an address belongs to an interface that has just come up.
TEST(TcpConnect, AnIpv6AddressThatIsNotToBeHadYetIsLeftOutWhereThereIsAnother) {
  for (const auto& bind : {std::vector<std::string>{"[2001:db8::7]", "127.0.0.1"},
                           std::vector<std::string>{"127.0.0.1", "[2001:db8::7]"}}) {
    const Rank rank(identity(0, 2), {.bind = bind});
    ASSERT_EQ(rank.tcp->endpoints().size(), 1U);
    EXPECT_TRUE(contains(rank.endpoint(), "127.0.0.1:"));
    EXPECT_EQ(rank.num_logged("does not listen on [2001:db8::7]"), 1U);
  }
  EXPECT_THROW(Rank(identity(0, 2), {.bind = {"[2001:db8::7]"}}), Error);
}

TEST(TcpConnect, AnAddressThatCannotBeListenedOnIsAnErrorThatSaysWhy) {
  const Rank taken(identity(0, 1));
  const std::vector<std::pair<std::string, std::string>> cases{
      {"example.com", "allowed: an address such as"},
      {"203.0.113.7", "bind failed: Cannot assign requested address"},
      {taken.endpoint(), "bind failed: Address already in use"}};
  for (const auto& [address, reason] : cases) {
    try {
      const Rank rank(identity(0, 1), {.bind = {address}});
      ADD_FAILURE() << address << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_TRUE(contains(error.what(), reason)) << error.what();
      EXPECT_TRUE(contains(error.what(), address)) << error.what();
    }
  }
}

TEST(TcpConnect, WithoutDescriptorsConnectionsWaitUntilThereAreSome) {
  Rank lower(identity(0, 2));
  Rank higher(identity(1, 2));
  higher.tcp->dial(0, {lower.endpoint()});
  higher.poll();  // it has its first socket
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool noticed = poll_until({&lower}, [&] { return !lower.log.empty(); });
  while (lower.poll()) {
  }
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(noticed);
  EXPECT_EQ(lower.num_logged("accept4 failed: Too many open files"), 1U);
  EXPECT_NE(lower.tcp->next_event(), TimePoint::max());
  EXPECT_TRUE(connects(lower, higher));
}

TEST(TcpConnect, DescriptorsStayFlatOverTwoHundredConnections) {
  const auto connect_once = [](int round) {
    Rank lower(identity(0, 2));
    Rank higher(identity(1, 2));
    higher.tcp->dial(0, {lower.endpoint()});
    const Descriptor stranger = connect_to(lower.endpoint());
    if (round % 3 == 0) return;  // given up half-way
    EXPECT_TRUE(connects(lower, higher));
    if (round % 3 == 1) higher.tcp->close();
  };
  connect_once(1);
  const std::size_t before = count_descriptors();
  for (int round = 0; round < 200; ++round) connect_once(round);
  EXPECT_EQ(count_descriptors(), before);
}

}  // namespace
}  // namespace slipstream::test
