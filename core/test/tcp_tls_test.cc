#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "tcp_world.h"

// Tests ranks that encrypt their connections beside ranks that do not, and beside strangers.
namespace slipstream::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The results of one rank's attempts to connect.
class Outcome final : public Sink {
 public:
  void connected(std::uint32_t, Link& connected) override { link = &connected; }
  void refused(std::uint32_t, const std::string& why) override { reason = why; }
  std::byte* place(std::uint32_t, const Frame&) override { return nullptr; }
  void arrived(std::uint32_t, std::uint32_t, const Frame&, std::span<const std::byte>) override {}
  void stream_lost(std::uint32_t, std::uint32_t, const std::string&) override {}

  Link* link = nullptr;
  std::string reason;
};

struct Rank {
  Rank(std::uint32_t number, bool tls, Clock::duration handshake_deadline = kHandshakeDeadline,
       std::uint8_t key = 1) {
    Identity self = identity(number, 3);
    self.key = job_key(key);
    TcpOptions options{.tls = tls, .handshake_deadline = handshake_deadline};
    options.log = Log([this](LogLevel, const std::string& record) { log.push_back(record); });
    tcp = std::make_unique<TcpTransport>(self, std::move(options));
  }
  [[nodiscard]] std::string endpoint() const { return tcp->endpoints().at(0); }
  [[nodiscard]] bool logged(const std::string& part) const {
    return std::ranges::any_of(log, [&](const auto& record) { return contains(record, part); });
  }

  std::vector<std::string> log;
  Outcome outcome;
  std::unique_ptr<TcpTransport> tcp;
};

bool poll_until(std::initializer_list<Rank*> ranks, const std::function<bool()>& condition) {
  const TimePoint deadline = Clock::now() + kPatience;
  while (!condition()) {
    for (Rank* const rank : ranks) rank->tcp->poll(rank->outcome);
    if (Clock::now() >= deadline) return false;
  }
  return true;
}

bool connects(Rank& lower, Rank& higher) {
  higher.tcp->dial(0, {lower.endpoint()});
  return poll_until({&lower, &higher}, [&] {
    return lower.outcome.link != nullptr && higher.outcome.link != nullptr;
  });
}

/// Shakes hands as rank 2 that wants TLS, and then does what it likes.
Descriptor impostor(Rank& lower) {
  const Handshake::Call call{.purpose = Purpose::kTls, .peer = 0, .num_streams = 2};
  return open_stream(identity(2, 3), lower.endpoint(), call,
                     [&] { lower.tcp->poll(lower.outcome); });
}

void write(const Descriptor& socket, const std::string& bytes) {
  EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

/// Whether the other end has closed the connection, perhaps after messages of TLS.
bool is_ended_after_tls(const Descriptor& socket) {
  char message[64];
  while (::recv(socket.get(), message, sizeof message, MSG_DONTWAIT) > 0) {
  }
  return is_ended(socket);
}

TEST(TcpTls, LinksSayThatTheyAreEncrypted) {
  for (const bool tls : {false, true}) {
    Rank lower(0, tls);
    Rank higher(1, tls);
    ASSERT_TRUE(connects(lower, higher));
    EXPECT_EQ(higher.outcome.link->describe(),
              "tcp " + lower.endpoint() + " (lo)" + (tls ? " with TLS" : ""));
  }
}

TEST(TcpTls, ARankWithAndOneWithoutRefuseEachOther) {
  for (const bool listener_has_tls : {false, true}) {
    Rank lower(0, listener_has_tls);
    Rank higher(1, !listener_has_tls);
    higher.tcp->dial(0, {lower.endpoint()});
    ASSERT_TRUE(poll_until({&lower, &higher}, [&] { return !higher.outcome.reason.empty(); }));
    ASSERT_TRUE(poll_until({&lower}, [&] { return !lower.log.empty(); }));
    const std::string reason =
        concat("the connecting rank has SLIPSTREAM_TLS=", listener_has_tls ? 0 : 1,
               ", the listening one SLIPSTREAM_TLS=", listener_has_tls ? 1 : 0,
               "; set it alike on all ranks");
    EXPECT_TRUE(contains(higher.outcome.reason, "rank 0 cannot be reached"));
    EXPECT_TRUE(contains(higher.outcome.reason, lower.endpoint() + " refused: " + reason))
        << higher.outcome.reason;
    EXPECT_TRUE(lower.logged("was refused: " + reason)) << lower.log.at(0);
    EXPECT_EQ(lower.outcome.link, nullptr) << "it must not fall back";
  }
}

TEST(TcpTls, AnotherJobKeyIsRefusedBeforeTls) {
  Rank lower(0, true);
  Rank higher(1, true, kHandshakeDeadline, 2);
  higher.tcp->dial(0, {lower.endpoint()});
  ASSERT_TRUE(poll_until({&lower, &higher}, [&] { return !higher.outcome.reason.empty(); }));
  EXPECT_TRUE(contains(higher.outcome.reason, "did not prove the job key"));
}

TEST(TcpTls, AStrangersClientHelloIsRefusedAtItsFirstBytes) {
  Rank lower(0, true);
  const Descriptor stranger = connect_to(lower.endpoint());
  write(stranger, std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9));
  ASSERT_TRUE(poll_until({&lower}, [&] { return is_ended(stranger); }));
  EXPECT_TRUE(lower.logged("does not speak Slipstream's protocol: it began with '........'"));
}

/// Only somebody who knows the job key, or who changes a rank's bytes on their way, comes so far.
TEST(TcpTls, BadBytesInPlaceOfTlsEndTheirConnectionAndNoOther) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"GET / HTTP/1.1\r\n\r\n", "sent what TLS does not accept (http request)"},
      {std::string("\x16\x03\x03\x50\x00", 5) + std::string(1000, 'x'), "too long)"},
      {std::string("\x16\x03\x01\x02\x00\x01\x00", 7), "did not finish the handshake of TLS"}};
  for (const auto& [bytes, reason] : cases) {
    Rank lower(0, true, 200ms);
    const Descriptor socket = impostor(lower);
    write(socket, bytes);
    ASSERT_TRUE(poll_until({&lower}, [&] { return is_ended_after_tls(socket); })) << reason;
    EXPECT_TRUE(lower.logged(reason)) << (lower.log.empty() ? "nothing was logged" : lower.log[0]);
    Rank higher(1, true);
    EXPECT_TRUE(connects(lower, higher));
  }
}

TEST(TcpTls, ASilentConnectorIsDroppedAtTheDeadlineWhileOthersConnect) {
  Rank lower(0, true, 300ms);
  const Descriptor socket = impostor(lower);
  Rank higher(1, true);
  EXPECT_TRUE(connects(lower, higher));
  ASSERT_TRUE(poll_until({&lower}, [&] { return is_ended_after_tls(socket); }));
  EXPECT_TRUE(lower.logged("did not finish the handshake of TLS in time"));
}

}  // namespace
}  // namespace slipstream::test
