#include "transport/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

using Progress = Handshake::Progress;
using Failure = Handshake::Failure;

struct Wire {
  Wire() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    left = Descriptor(fds[0], "socketpair");
    right = Descriptor(fds[1], "socketpair");
  }
  Descriptor left;
  Descriptor right;
};

JobKey key_of(std::uint8_t seed) {
  JobKey key;
  key.fill(std::byte{seed});
  return key;
}

Identity rank(std::uint32_t number) {
  return {.rank = number, .world_size = 8, .epoch = 3, .key = key_of(9)};
}

/// The changes that a test makes in a handshake of rank 5, which calls rank 2, stream 1 of 4.
struct Setting {
  Identity connector = rank(5);
  Identity acceptor = rank(2);
  Handshake::Call call{.purpose = Purpose::kTcp, .peer = 2, .stream = 1, .num_streams = 4};
  Purpose purpose = Purpose::kTcp;
  Handshake::Admit admit{};
};

struct Ends {
  explicit Ends(const Setting& setting = {})
      : connector(Handshake::connect(setting.connector, setting.call)),
        acceptor(Handshake::accept(setting.acceptor, setting.purpose, setting.admit)) {}

  Handshake connector;
  Handshake acceptor;
};

/// Advances one end, and closes its socket if it has failed, as every caller does.
Progress step(Handshake& handshake, Descriptor& socket) {
  const Progress progress = handshake.advance(socket.get());
  if (progress == Progress::kFailed) socket.reset();
  return progress;
}

/// Advances both ends until both are done or have failed.
std::pair<Progress, Progress> run(Ends& ends, Wire& wire) {
  for (int i = 0; i < 10; ++i) {
    const Progress connector = step(ends.connector, wire.left);
    const Progress acceptor = step(ends.acceptor, wire.right);
    if (connector != Progress::kPending && acceptor != Progress::kPending) {
      return {connector, acceptor};
    }
  }
  ADD_FAILURE() << "the handshake comes to no end";
  return {Progress::kPending, Progress::kPending};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::byte> drain(int fd) {
  std::vector<std::byte> bytes(4096);
  const ssize_t count = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return bytes;
}

void write_all(int fd, const void* bytes, std::size_t size) {
  ASSERT_EQ(::send(fd, bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
}

TEST(Handshake, ProvesBothEndsToEachOther) {
  Ends ends;
  Wire wire;
  EXPECT_EQ(run(ends, wire), std::pair(Progress::kDone, Progress::kDone));
  const Hello& hello = ends.acceptor.hello();
  EXPECT_EQ(hello.from, 5U);
  EXPECT_EQ(hello.to, 2U);
  EXPECT_EQ(hello.stream, 1U);
  EXPECT_EQ(hello.num_streams, 4U);
  EXPECT_EQ(ends.connector.failure(), Failure::kNone);
}

TEST(Handshake, GivesTheEndsOfEachConnectionASecretOfTheirOwn) {
  std::vector<Digest> secrets;
  for (int i = 0; i < 2; ++i) {
    Ends ends;
    Wire wire;
    ASSERT_EQ(run(ends, wire), std::pair(Progress::kDone, Progress::kDone));
    EXPECT_EQ(ends.connector.secret(), ends.acceptor.secret());
    secrets.push_back(ends.connector.secret());
  }
  EXPECT_NE(secrets[0], secrets[1]);
}

TEST(Handshake, ReadsNoByteThatFollows) {
  Ends ends;
  Wire wire;
  Progress acceptor = Progress::kPending;
  while (acceptor == Progress::kPending) {
    EXPECT_EQ(ends.connector.advance(wire.left.get()), Progress::kPending);
    acceptor = ends.acceptor.advance(wire.right.get());
  }
  write_all(wire.right.get(), "frame", 5);  // right behind the verdict
  EXPECT_EQ(ends.connector.advance(wire.left.get()), Progress::kDone);
  EXPECT_EQ(drain(wire.left.get()).size(), 5U);
}

TEST(Handshake, GoesOnWithOneByteAtATime) {
  Ends ends;
  Wire left;
  Wire right;
  Progress connector = Progress::kPending;
  Progress acceptor = Progress::kPending;
  for (int i = 0; i < 1000 && connector == Progress::kPending; ++i) {
    connector = ends.connector.advance(left.left.get());
    acceptor = ends.acceptor.advance(right.right.get());
    std::byte byte{};
    if (::recv(left.right.get(), &byte, 1, 0) == 1) write_all(right.left.get(), &byte, 1);
    if (::recv(right.left.get(), &byte, 1, 0) == 1) write_all(left.right.get(), &byte, 1);
  }
  EXPECT_EQ(connector, Progress::kDone);
  EXPECT_EQ(acceptor, Progress::kDone);
}

TEST(Handshake, AnotherKeyIsAStrangerOnBothEnds) {
  Setting setting;
  setting.connector.key = key_of(8);
  Ends ends(setting);
  Wire wire;
  EXPECT_EQ(run(ends, wire), std::pair(Progress::kFailed, Progress::kFailed));
  EXPECT_EQ(ends.connector.failure(), Failure::kStranger);
  EXPECT_TRUE(contains(ends.connector.reason(), "did not prove the job key"));
  EXPECT_TRUE(contains(ends.acceptor.reason(), "another job key")) << ends.acceptor.reason();
}

TEST(Handshake, AConnectorWithoutTheKeyLearnsNothingButAClosedSocket) {
  Ends ends;
  Wire wire;
  ends.connector.advance(wire.left.get());
  EXPECT_EQ(ends.acceptor.advance(wire.right.get()), Progress::kPending);
  EXPECT_EQ(drain(wire.left.get()).size(), 80U);  // the challenge
  const Digest forged{};
  write_all(wire.left.get(), forged.data(), forged.size());
  EXPECT_EQ(step(ends.acceptor, wire.right), Progress::kFailed);
  EXPECT_EQ(ends.acceptor.failure(), Failure::kStranger);
  EXPECT_EQ(ends.acceptor.reason(), "did not prove the job key, and claimed to be rank 5");
  EXPECT_EQ(drain(wire.left.get()).size(), 0U);
}

TEST(Handshake, WhatARankOfTheJobAskedForInVainIsSaidToBothEnds) {
  const std::vector<std::pair<std::function<void(Setting&)>, std::string>> cases{
      {[](Setting& s) { s.connector.epoch = 2; },
       "the connection is of epoch 2, rank 2 is in epoch 3"},
      {[](Setting& s) { s.connector.world_size = 9; }, "rank 5 has world size 9, rank 2 has 8"},
      {[](Setting& s) { s.call.peer = 4; }, "the connection is for rank 4, this is rank 2"},
      {[](Setting& s) { s.connector.rank = 2; },
       "rank 2 connected to rank 2; allowed: the other ranks below 8"},
      {[](Setting& s) { s.connector.rank = 8; },
       "rank 8 connected to rank 2; allowed: the other ranks below 8"},
      {[](Setting& s) { s.call.stream = 4; }, "stream 4 was requested; allowed: 0 to 3"},
      {[](Setting& s) { s.purpose = Purpose::kShm; },
       "the connection is for a tcp stream, this listener is for shared memory"},
      {[](Setting& s) { s.purpose = Purpose::kTls; },
       "the connecting rank has SLIPSTREAM_TLS=0, the listening one SLIPSTREAM_TLS=1; set it alike "
       "on all ranks"},
      {[](Setting& s) { s.call.purpose = Purpose::kTls; },
       "the connecting rank has SLIPSTREAM_TLS=1, the listening one SLIPSTREAM_TLS=0; set it alike "
       "on all ranks"},
      {[](Setting& s) { s.admit = [](const Hello&) { return std::string("no room"); }; },
       "no room"}};
  for (const auto& [change, reason] : cases) {
    Setting setting;
    change(setting);
    Ends ends(setting);
    Wire wire;
    EXPECT_EQ(run(ends, wire), std::pair(Progress::kFailed, Progress::kFailed));
    EXPECT_EQ(ends.connector.failure(), Failure::kRefused) << reason;
    EXPECT_EQ(ends.connector.reason(), "refused: " + reason);
    EXPECT_EQ(ends.acceptor.reason(), "was refused: " + reason);
  }
}

TEST(Handshake, AnAcceptorOfAnotherVersionIsNamed) {
  Ends ends;
  Wire wire;
  ends.connector.advance(wire.left.get());
  Hello answer{};
  answer.magic = kHandshakeMagic;
  answer.version = kProtocolVersion + 1;
  write_all(wire.right.get(), &answer, 10);
  EXPECT_EQ(ends.connector.advance(wire.left.get()), Progress::kFailed);
  EXPECT_EQ(ends.connector.failure(), Failure::kRefused);
  EXPECT_TRUE(
      contains(ends.connector.reason(),
               concat("speaks protocol version ", kProtocolVersion + 1, ", this process speaks")));
}

TEST(Handshake, AConnectorOfAnotherVersionLearnsOurs) {
  Ends ends;
  Wire wire;
  Hello hello{};
  hello.magic = kHandshakeMagic;
  hello.version = kProtocolVersion + 7;
  write_all(wire.left.get(), &hello, 20);  // its hello may be shorter than ours
  EXPECT_EQ(ends.acceptor.advance(wire.right.get()), Progress::kFailed);
  EXPECT_TRUE(
      contains(ends.acceptor.reason(), concat("speaks protocol version ", kProtocolVersion + 7)));
  const auto answer = drain(wire.left.get());
  ASSERT_EQ(answer.size(), 80U);
  std::uint16_t version = 0;
  std::memcpy(&version, answer.data() + offsetof(Hello, version), sizeof version);
  EXPECT_EQ(version, kProtocolVersion);
  for (std::size_t i = 10; i < answer.size(); ++i) EXPECT_EQ(answer[i], std::byte{});
}

TEST(Handshake, OtherProtocolsAreRecognisedByTheirFirstBytes) {
  for (const std::string text : {"G", "GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n"}) {
    Ends ends;
    Wire wire;
    write_all(wire.left.get(), text.data(), text.size());
    EXPECT_EQ(ends.acceptor.advance(wire.right.get()), Progress::kFailed) << text;
    EXPECT_EQ(ends.acceptor.failure(), Failure::kStranger);
    EXPECT_TRUE(contains(ends.acceptor.reason(), "it began with '" + text.substr(0, 8) + "'"))
        << ends.acceptor.reason();
    EXPECT_EQ(drain(wire.left.get()).size(), 0U);
  }
}

TEST(Handshake, AChangedByteAnywhereIsNoticed) {
  for (std::size_t changed = 0; changed < sizeof(Hello) + 80 + 32; ++changed) {
    Ends ends;
    Wire left;
    Wire right;
    std::size_t carried = 0;  // of the messages that prove something
    const auto carry = [&](int in, int out) {
      auto bytes = drain(in);
      if (changed >= carried && changed < carried + bytes.size()) {
        bytes[changed - carried] ^= std::byte{0x40};
      }
      carried += bytes.size();
      if (!bytes.empty()) ::send(out, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    };
    Progress connector = Progress::kPending;
    Progress acceptor = Progress::kPending;
    for (int i = 0; i < 4; ++i) {
      if (connector == Progress::kPending) connector = step(ends.connector, left.left);
      carry(left.right.get(), right.left.get());
      if (acceptor == Progress::kPending) acceptor = step(ends.acceptor, right.right);
      carry(right.left.get(), left.right.get());
    }
    EXPECT_NE(acceptor, Progress::kDone) << "byte " << changed;
    EXPECT_NE(connector, Progress::kDone) << "byte " << changed;
  }
}

TEST(Handshake, ARecordedConnectorProvesNothing) {
  Wire first;
  std::vector<std::byte> hello;
  std::vector<std::byte> proof;
  {
    Ends ends;
    Wire second;
    ends.connector.advance(first.left.get());
    hello = drain(first.right.get());
    write_all(second.left.get(), hello.data(), hello.size());
    ends.acceptor.advance(second.right.get());
    const auto challenge = drain(second.left.get());
    write_all(first.right.get(), challenge.data(), challenge.size());
    ends.connector.advance(first.left.get());
    proof = drain(first.right.get());
    ASSERT_EQ(proof.size(), sizeof(Digest));
  }
  Ends again;
  Wire wire;
  write_all(wire.left.get(), hello.data(), hello.size());
  write_all(wire.left.get(), proof.data(), proof.size());
  EXPECT_EQ(again.acceptor.advance(wire.right.get()), Progress::kFailed);
  EXPECT_EQ(again.acceptor.failure(), Failure::kStranger);
}

TEST(Handshake, AnEchoProvesNothing) {
  Ends ends;
  Wire wire;
  for (int i = 0; i < 4 && wire.left; ++i) {
    step(ends.connector, wire.left);
    const auto bytes = drain(wire.right.get());
    if (!bytes.empty()) ::send(wire.right.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  wire.right.reset();
  EXPECT_EQ(ends.connector.advance(wire.left.get()), Progress::kFailed);
}

TEST(Handshake, ASilentStrangerIsGivenUpAtTheDeadline) {
  Wire wire;
  auto acceptor = Handshake::accept(rank(2), Purpose::kTcp, {}, Clock::now() + 1ms);
  Progress progress = Progress::kPending;
  while (progress == Progress::kPending) progress = acceptor.advance(wire.right.get());
  EXPECT_EQ(progress, Progress::kFailed);
  EXPECT_EQ(acceptor.failure(), Failure::kConnection);
  EXPECT_TRUE(contains(acceptor.reason(), "sent nothing within 0.00")) << acceptor.reason();
  auto connector = Handshake::connect(rank(5), {.purpose = Purpose::kTcp, .peer = 2}, Clock::now());
  EXPECT_EQ(connector.advance(wire.left.get()), Progress::kFailed);
  EXPECT_TRUE(contains(connector.reason(), "did not finish the handshake")) << connector.reason();
}

TEST(Handshake, AClosedConnectionIsSaidToBeOne) {
  Ends ends;
  Wire wire;
  wire.left.reset();
  EXPECT_EQ(ends.acceptor.advance(wire.right.get()), Progress::kFailed);
  EXPECT_EQ(ends.acceptor.reason(), "closed the connection without sending anything");
  EXPECT_EQ(ends.acceptor.failure(), Failure::kConnection);
}

TEST(Hmac, AgreesWithTheVectorsOfRfc4231) {
  const auto hmac = [](const std::string& key, std::initializer_list<std::string> parts) {
    const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
    Digest digest{};
    if (parts.size() == 1) digest = hmac_sha256(bytes(key), {bytes(*parts.begin())});
    if (parts.size() == 2) {
      digest = hmac_sha256(bytes(key), {bytes(*parts.begin()), bytes(*(parts.begin() + 1))});
    }
    std::string hex;
    for (const std::byte byte : digest) {
      const char* const digits = "0123456789abcdef";
      hex += digits[std::to_integer<int>(byte >> 4)];
      hex += digits[std::to_integer<int>(byte & std::byte{15})];
    }
    return hex;
  };
  EXPECT_EQ(hmac(std::string(20, '\x0b'), {"Hi There"}),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", {"what do ya want ", "for nothing?"}),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hmac(std::string(131, '\xaa'), {"Test Using Larger Than Block-Size Key - Hash Key First"}),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, ComparesWholeDigests) {
  const Digest digest = random_nonce();
  Digest other = digest;
  EXPECT_TRUE(equal_in_constant_time(digest, other));
  other.back() ^= std::byte{1};
  EXPECT_FALSE(equal_in_constant_time(digest, other));
  EXPECT_NE(random_nonce(), random_nonce());
}

}  // namespace
}  // namespace slipstream
