#include "transport/tcp/tls_channel.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "transport/tcp/plain_channel.h"

// Tests the bytes between two ends of TLS: the wire is this test, which records, changes and cuts.
namespace slipstream::test {
namespace {

using Bytes = std::vector<std::byte>;
using Progress = TlsChannel::Progress;

Digest secret_of(std::uint8_t seed) {
  Digest secret;
  secret.fill(std::byte{seed});
  return secret;
}

Bytes noise(std::size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

bool contains(std::span<const std::byte> bytes, std::span<const std::byte> part) {
  return !std::ranges::search(bytes, part).empty();
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

iovec part_of(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

std::size_t send(ByteChannel& channel, std::span<const std::byte> bytes) {
  const iovec part = part_of(bytes);
  return channel.send({&part, 1});
}

ByteChannel::Received receive(ByteChannel& channel, std::span<std::byte> into) {
  const iovec part = part_of(into);
  return channel.receive({&part, 1});
}

/// Two sockets, whose bytes the test carries from one to the other.
struct Cable {
  struct Side {
    Descriptor socket;  // of the channel
    Descriptor plug;    // of the test
    Bytes sent;         // bytes that the channel has sent so far
  };

  Cable() {
    for (Side& side : sides) {
      std::array<int, 2> fds{};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()),
                0);
      side.socket = Descriptor(fds[0], "socketpair");
      side.plug = Descriptor(fds[1], "socketpair");
    }
  }

  /// Takes at most `most` bytes that one side has sent.
  Bytes take(std::size_t from, std::size_t most = 1 << 20) {
    Bytes bytes(most);
    const ssize_t count = ::recv(sides[from].plug.get(), bytes.data(), most, MSG_DONTWAIT);
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    sides[from].sent.insert(sides[from].sent.end(), bytes.begin(), bytes.end());
    return bytes;
  }
  void give(std::size_t to, std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(sides[to].plug.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// Carries at most `most` bytes in each direction.
  void carry(std::size_t most = 16 * 1024) {
    give(1, take(0, most));
    give(0, take(1, most));
  }

  std::array<Side, 2> sides;
};

/// Both ends of TLS over a cable.
struct Ends {
  explicit Ends(const Digest& left = secret_of(1), const Digest& right = secret_of(1),
                std::uint64_t records_per_key = TlsChannel::kRecordsPerKey)
      : connector(cable.sides[0].socket.get(), TlsEnd::kClient, left, records_per_key),
        acceptor(cable.sides[1].socket.get(), TlsEnd::kServer, right, records_per_key) {}

  /// Opens both ends; returns their last progress.
  std::pair<Progress, Progress> open(std::size_t bytes_at_a_time = 16 * 1024) {
    auto left = Progress::kPending;
    auto right = Progress::kPending;
    for (int i = 0; i < 5000; ++i) {
      if (left == Progress::kPending) left = connector.open();
      if (right == Progress::kPending) right = acceptor.open();
      if (left != Progress::kPending && right != Progress::kPending) break;
      cable.carry(bytes_at_a_time);
    }
    return {left, right};
  }
  /// Sends bytes from the connector to the acceptor, and returns those that arrive.
  Bytes pass(std::span<const std::byte> bytes) {
    Bytes arrived(bytes.size());
    std::size_t sent = 0;
    std::size_t received = 0;
    while (received < bytes.size()) {
      connector.flush();
      if (!connector.holds_bytes()) sent += send(connector, bytes.subspan(sent));
      cable.carry();
      received += receive(acceptor, std::span(arrived).subspan(received)).bytes;
      if (!acceptor.receive_failure().empty() || acceptor.ended()) break;
    }
    arrived.resize(received);
    return arrived;
  }

  Cable cable;
  TlsChannel connector;
  TlsChannel acceptor;
};

const std::pair kBothDone{Progress::kDone, Progress::kDone};

TEST(TlsChannel, CarriesBytesOfWhichNoneIsReadableOnTheWire) {
  const Bytes message = noise(300'000);
  const std::span<const std::byte> sample = std::span(message).subspan(1000, 8);
  Ends ends;
  ASSERT_EQ(ends.open(), kBothDone);
  EXPECT_EQ(ends.pass(message), message);
  EXPECT_FALSE(contains(ends.cable.sides[0].sent, sample));
  EXPECT_LT(ends.cable.sides[0].sent.size(), message.size() + 2000) << "22 bytes for each 16 KB";

  Cable cable;  // the same without TLS, to show that the search can find something
  PlainChannel plain(cable.sides[0].socket.get());
  EXPECT_EQ(send(plain, std::span(message).first(5000)), 5000U);
  cable.take(0);
  EXPECT_TRUE(contains(cable.sides[0].sent, sample));
}

TEST(TlsChannel, OpensWithOneByteAtATime) {
  Ends ends;
  ASSERT_EQ(ends.open(1), kBothDone);
  const Bytes message = noise(1000);
  EXPECT_EQ(ends.pass(message), message);
}

TEST(TlsChannel, AnotherSecretFailsOnBothEnds) {
  Ends ends(secret_of(1), secret_of(2));
  EXPECT_EQ(ends.open(), std::pair(Progress::kFailed, Progress::kFailed));
  EXPECT_TRUE(contains(ends.acceptor.open_failure(), "sent what TLS does not accept"))
      << ends.acceptor.open_failure();
  EXPECT_TRUE(contains(ends.connector.open_failure(), "alert")) << ends.connector.open_failure();
}

/// If the secret alone gave the keys, whoever learns it later could open recorded bytes.
TEST(TlsChannel, EphemeralKeysAreExchangedBesideTheSecret) {
  // In the ServerHello: key_share with 32 bytes of X25519, and pre_shared_key with identity 0.
  constexpr std::array<std::uint8_t, 8> kKeyShare{0, 0x33, 0, 0x24, 0, 0x1d, 0, 0x20};
  constexpr std::array<std::uint8_t, 6> kPreSharedKey{0, 0x29, 0, 2, 0, 0};
  std::vector<Bytes> shares;
  for (int i = 0; i < 2; ++i) {
    Ends ends;
    ASSERT_EQ(ends.open(), kBothDone);
    const Bytes& hello = ends.cable.sides[1].sent;
    EXPECT_TRUE(contains(hello, std::as_bytes(std::span(kPreSharedKey))));
    const auto share = std::ranges::search(hello, std::as_bytes(std::span(kKeyShare)));
    ASSERT_FALSE(share.empty());
    shares.emplace_back(share.begin(), share.begin() + 40);
  }
  EXPECT_NE(shares[0], shares[1]);
}

/// A server of TLS 1.3 with a certificate of its own making, which does not know the secret.
TEST(TlsChannel, ACertificateIsNoSubstituteForTheSecret) {
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> maker(
      EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, nullptr), EVP_PKEY_CTX_free);
  EVP_PKEY* key = nullptr;
  ASSERT_EQ(EVP_PKEY_keygen_init(maker.get()), 1);
  ASSERT_EQ(EVP_PKEY_keygen(maker.get(), &key), 1);
  X509* const certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  ASSERT_GT(X509_sign(certificate, key, nullptr), 0);
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  ASSERT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);

  Cable cable;
  TlsChannel connector(cable.sides[0].socket.get(), TlsEnd::kClient, secret_of(1));
  SSL* const server = SSL_new(context);
  SSL_set_fd(server, cable.sides[1].socket.get());
  auto progress = Progress::kPending;
  for (int i = 0; i < 20 && progress == Progress::kPending; ++i) {
    progress = connector.open();
    SSL_accept(server);
    cable.carry();
  }
  EXPECT_EQ(progress, Progress::kFailed);
  EXPECT_TRUE(contains(connector.open_failure(), "certificate verify failed"))
      << connector.open_failure();
  SSL_free(server);
  SSL_CTX_free(context);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

TEST(TlsChannel, AClientWithoutTheSecretOrOfTls12IsRefused) {
  for (const int version : {TLS1_3_VERSION, TLS1_2_VERSION}) {
    Cable cable;
    TlsChannel acceptor(cable.sides[1].socket.get(), TlsEnd::kServer, secret_of(1));
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(context, version);
    SSL* const client = SSL_new(context);
    SSL_set_fd(client, cable.sides[0].socket.get());
    EXPECT_LT(SSL_connect(client), 1);
    cable.carry();
    EXPECT_EQ(acceptor.open(), Progress::kFailed) << version;
    SSL_free(client);
    SSL_CTX_free(context);
  }
}

/// The record header of an attacker, who has got past our handshake.
Bytes record(std::uint8_t type, std::uint16_t length, std::span<const std::byte> body) {
  const std::array<std::uint8_t, 5> head{type, 3, 3, static_cast<std::uint8_t>(length >> 8U),
                                         static_cast<std::uint8_t>(length & 0xffU)};
  Bytes bytes(head.size() + body.size());
  std::ranges::copy(std::as_bytes(std::span(head)), bytes.begin());
  std::ranges::copy(body, bytes.begin() + head.size());
  return bytes;
}

TEST(TlsChannel, GarbageAndOversizedRecordsEndTheOpening) {
  const Bytes body = noise(17'000);
  for (const Bytes& sent : {body, record(22, 16'700, body), record(23, 100, body)}) {
    Cable cable;
    TlsChannel acceptor(cable.sides[1].socket.get(), TlsEnd::kServer, secret_of(1));
    EXPECT_EQ(acceptor.open(), Progress::kPending);
    cable.give(1, sent);
    EXPECT_EQ(acceptor.open(), Progress::kFailed);
    EXPECT_TRUE(contains(acceptor.open_failure(), "sent what TLS does not accept ("))
        << acceptor.open_failure();
  }
}

TEST(TlsChannel, AHandshakeWithoutEndIsReadToALimit) {
  Cable cable;
  TlsChannel acceptor(cable.sides[1].socket.get(), TlsEnd::kServer, secret_of(1));
  Bytes body = noise(10'000);  // of a ClientHello that has 100 KB
  const std::array<std::uint8_t, 4> head{1, 1, 0x86, 0xa0};
  std::ranges::copy(std::as_bytes(std::span(head)), body.begin());
  cable.give(1, record(22, 10'000, body));
  EXPECT_EQ(acceptor.open(), Progress::kPending);
  cable.give(1, record(22, 10'000, noise(10'000)));
  EXPECT_EQ(acceptor.open(), Progress::kFailed);
  EXPECT_TRUE(contains(acceptor.open_failure(), "allowed: at most 16384"))
      << acceptor.open_failure();
}

TEST(TlsChannel, ATruncatedClientHelloIsWaitedForAndItsEndIsNoticed) {
  Ends ends;
  EXPECT_EQ(ends.connector.open(), Progress::kPending);
  const Bytes hello = ends.cable.take(0);
  ends.cable.give(1, std::span(hello).first(hello.size() / 2));
  EXPECT_EQ(ends.acceptor.open(), Progress::kPending);
  ends.cable.sides[1].plug.reset();
  EXPECT_EQ(ends.acceptor.open(), Progress::kFailed);
  EXPECT_EQ(ends.acceptor.open_failure(), "closed the connection during the handshake of TLS");
}

TEST(TlsChannel, ChangedRepeatedAndReorderedRecordsAreNotDelivered) {
  const auto change = [](std::vector<Bytes>& records) { records[1][100] ^= std::byte{1}; };
  const auto repeat = [](std::vector<Bytes>& records) { records[1] = records[0]; };
  const auto reorder = [](std::vector<Bytes>& records) { std::swap(records[1], records[2]); };
  const auto drop = [](std::vector<Bytes>& records) { records.erase(records.begin() + 1); };
  for (const auto& attack :
       std::vector<std::function<void(std::vector<Bytes>&)>>{change, repeat, reorder, drop}) {
    Ends ends;
    ASSERT_EQ(ends.open(), kBothDone);
    const Bytes message = noise(3000);
    std::vector<Bytes> records;
    for (std::size_t begin = 0; begin < message.size(); begin += 1000) {
      EXPECT_EQ(send(ends.connector, std::span(message).subspan(begin, 1000)), 1000U);
      records.push_back(ends.cable.take(0));
    }
    attack(records);
    for (const Bytes& each : records) ends.cable.give(1, each);
    Bytes arrived(3000);
    const auto received = receive(ends.acceptor, arrived);
    EXPECT_EQ(received.bytes, 1000U) << "the first record is whole";
    EXPECT_FALSE(received.drained);
    EXPECT_EQ(receive(ends.acceptor, arrived).bytes, 0U);
    EXPECT_TRUE(contains(ends.acceptor.receive_failure(), "TLS failed: "))
        << ends.acceptor.receive_failure();
  }
}

TEST(TlsChannel, TheEndIsToldAfterTheLastByte) {
  Ends ends;
  ASSERT_EQ(ends.open(), kBothDone);
  const Bytes message = noise(50'000);
  EXPECT_EQ(send(ends.connector, message), message.size());
  ends.cable.carry(1 << 20);
  ends.cable.sides[1].plug.reset();
  Bytes arrived(60'000);
  const auto received = receive(ends.acceptor, arrived);
  EXPECT_EQ(received.bytes, message.size());
  EXPECT_FALSE(received.drained);
  EXPECT_EQ(receive(ends.acceptor, arrived).bytes, 0U);
  EXPECT_TRUE(ends.acceptor.ended());
  EXPECT_EQ(ends.acceptor.receive_failure(), "");
}

TEST(TlsChannel, BytesThatWaitForTheSocketAreBounded) {
  Ends ends;
  ASSERT_EQ(ends.open(), kBothDone);
  const int least = 4096;
  ::setsockopt(ends.cable.sides[0].socket.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  const Bytes message = noise(4 << 20);
  const std::size_t sent = send(ends.connector, message);
  EXPECT_TRUE(ends.connector.holds_bytes());
  EXPECT_LE(sent, std::size_t{128} * 1024) << "a batch of 64 KB is held, the socket takes less";
  EXPECT_EQ(send(ends.connector, std::span(message).subspan(sent)), 0U);
  Bytes arrived = ends.pass(std::span(message).subspan(sent));
  EXPECT_EQ(arrived.size(), message.size() - sent);
  EXPECT_TRUE(std::ranges::equal(arrived, std::span(message).first(arrived.size())));
}

TEST(TlsChannel, KeysAreRenewedAndNothingElseChanges) {
  const Bytes message = noise(1 << 20);
  std::array<std::size_t, 2> wire_bytes{};
  for (const std::uint64_t records_per_key : {TlsChannel::kRecordsPerKey, std::uint64_t{8}}) {
    Ends ends(secret_of(1), secret_of(1), records_per_key);
    ASSERT_EQ(ends.open(), kBothDone);
    EXPECT_EQ(ends.pass(message), message);
    wire_bytes[records_per_key == 8 ? 1 : 0] = ends.cable.sides[0].sent.size();
  }
  // The message that announces a key has 5 bytes, in a record that adds 22.
  EXPECT_GE(wire_bytes[1], wire_bytes[0] + 7 * 27);
}

TEST(TlsChannel, AClosedSocketIsAFailureWithoutASignal) {
  Ends ends;
  ASSERT_EQ(ends.open(), kBothDone);
  ends.cable.sides[0].plug.reset();
  EXPECT_EQ(ends.connector.send_failure(), "");
  const Bytes message = noise(10);
  send(ends.connector, message);
  EXPECT_EQ(ends.connector.send_failure(), "send failed: Broken pipe");
  EXPECT_EQ(send(ends.connector, message), 0U);
}

}  // namespace
}  // namespace slipstream::test
