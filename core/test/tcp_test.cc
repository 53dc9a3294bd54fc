#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "test/tcp_world.h"
#include "test/transport_world.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/tcp_transport.h"

namespace slipstream::test {
namespace {

constexpr std::uint32_t kRank = 1;  // rank of the peer that the test plays

/// Rank 0 over TCP, and a peer that the test plays.
class TcpWithRawPeer : public testing::Test {
 protected:
  TcpWithRawPeer() {
    auto tcp = std::make_unique<TcpTransport>(identity(0, 2), TcpOptions{});
    const std::string endpoint = tcp->endpoints().at(0);
    rank.transport = std::move(tcp);
    peer = std::make_unique<RawPeer>(identity(kRank, 2), 0, endpoint, [this] { rank.poll(); });
    EXPECT_TRUE(rank.drive_until([this] { return !rank.sink.links.empty(); }));
  }

  [[nodiscard]] Link& link() { return rank.link(kRank); }
  [[nodiscard]] const std::vector<Message>& received(std::uint32_t stream) {
    return rank.sink.received[{kRank, stream}];
  }
  bool wait_for(std::size_t num_frames) {
    return rank.drive_until([&] { return rank.sink.num_received >= num_frames; });
  }
  std::string wait_for_loss(std::uint32_t stream) {
    EXPECT_TRUE(rank.drive_until([&] { return rank.sink.lost.contains({kRank, stream}); }));
    return rank.sink.lost[{kRank, stream}];
  }
  void write(std::uint16_t stream, std::span<const std::byte> bytes) {
    peer->write(stream, bytes, [this] { rank.poll(); });
  }
  /// Some messages of the peer, and the bytes of all of them.
  std::vector<Message> make_messages(std::initializer_list<std::uint32_t> sizes) {
    std::vector<Message> messages;
    for (const std::uint32_t bytes : sizes) {
      messages.push_back(make_message(kRank, 0, 1, messages.size(), bytes));
    }
    return messages;
  }
  static std::vector<std::byte> join(const std::vector<Message>& messages) {
    std::vector<std::byte> all;
    for (const Message& message : messages) {
      const auto bytes = wire_bytes(message);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

  const TransportFamily family = tcp_family("IPv4", {});
  TransportRank rank{0, family};
  std::unique_ptr<RawPeer> peer;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(TcpWithRawPeer, FramesThatArriveInPiecesAreWhole) {
  const auto messages = make_messages({0, 1, 100, 4096, 4033, 70'000, 0, 63});
  const auto bytes = join(messages);
  std::size_t expected = 0;
  for (const std::size_t piece : {7UL, 63UL, 64UL, 65UL, 4095UL, 4096UL, 5000UL, 40'000UL}) {
    for (const std::uint16_t stream : {std::uint16_t{0}, std::uint16_t{1}}) {
      rank.sink.received.clear();
      expected += messages.size();
      for (std::size_t begin = 0; begin < bytes.size(); begin += piece) {
        write(stream, std::span(bytes).subspan(begin, std::min(piece, bytes.size() - begin)));
      }
      ASSERT_TRUE(wait_for(expected));
      EXPECT_TRUE(received(stream) == messages) << "pieces of " << piece;
    }
  }
}

TEST_F(TcpWithRawPeer, ThePayloadInTheTransportsMemoryIsAligned) {
  std::size_t misaligned = 0;
  rank.sink.on_arrived = [&](auto, auto, const Frame&, std::span<const std::byte> payload) {
    misaligned += reinterpret_cast<std::uintptr_t>(payload.data()) % 16 == 0 ? 0 : 1;
  };
  const auto messages = make_messages({1, 3, 16, 17, 100, 5000, 33, 1});
  const auto bytes = join(messages);
  write(0, bytes);
  write(1, bytes);
  ASSERT_TRUE(wait_for(2 * messages.size()));
  EXPECT_EQ(misaligned, 0U);
}

TEST_F(TcpWithRawPeer, AFrameThatIsTooLongEndsItsStreamAndNoOther) {
  const auto before = make_messages({10});
  Message message = make_message(kRank, 0, 1, 1, 0);
  message.frame.length = 9'999'999;
  write(1, join(before));
  write(1, wire_bytes(message));
  const std::string reason = wait_for_loss(1);
  EXPECT_TRUE(reason.starts_with("stream 1 of rank 1 (127.0.0.1:")) << reason;
  EXPECT_TRUE(contains(
      reason, ") sent a frame of 9999999 bytes; allowed: at most 262144; the stream is closed"))
      << reason;
  EXPECT_TRUE(received(1) == before);
  EXPECT_TRUE(rank.drive_until([&] { return peer->ended(1); }));
  EXPECT_FALSE(link().alive(1));
  EXPECT_TRUE(link().alive(0));
  EXPECT_TRUE(rank.try_send(kRank, 0, 5));
}

TEST_F(TcpWithRawPeer, AFrameOfAnUnknownKindEndsItsStream) {
  for (const unsigned kind : {0U, static_cast<unsigned>(kLastFrameKind) + 1, 255U}) {
    const auto stream = static_cast<std::uint16_t>(kind == 0 ? 0 : 1);
    if (!link().alive(stream)) continue;
    const Message message = make_message(kRank, 0, 1, 0, 0);
    auto bytes = wire_bytes(message);
    bytes[0] = static_cast<std::byte>(kind);
    write(stream, bytes);
    EXPECT_TRUE(contains(wait_for_loss(stream), "sent a frame of kind " + std::to_string(kind)));
  }
  EXPECT_EQ(rank.sink.num_received, 0U);
}

TEST_F(TcpWithRawPeer, WhatArrivedWholeIsDeliveredBeforeTheEnd) {
  const auto messages = make_messages({100, 200'000, 3});
  const auto bytes = wire_bytes(messages[1]);
  write(1, join(messages));
  write(1, std::span(bytes).first(1000));
  peer->close(1);
  EXPECT_TRUE(contains(wait_for_loss(1), "was closed by the peer in the middle of a frame"));
  EXPECT_TRUE(received(1) == messages);
  peer->close(0);
  EXPECT_TRUE(wait_for_loss(0).ends_with("was closed by the peer"));
}

TEST_F(TcpWithRawPeer, AResetIsReportedAsOne) {
  peer->reset(1);
  EXPECT_TRUE(contains(wait_for_loss(1), "Connection reset by peer"));
  EXPECT_TRUE(link().alive(0));
}

TEST_F(TcpWithRawPeer, AFailedWriteIsReportedAfterWhatHadArrived) {
  const auto messages = make_messages({100, 5000});
  peer->write(1, join(messages));
  peer->reset(1);
  const Message message = make_message(0, kRank, 1, 0, 100);
  while (link().alive(1)) link().send(1, message.frame, message.payload);
  EXPECT_FALSE(link().ready(1));
  EXPECT_TRUE(rank.sink.lost.empty()) << "outside of poll()";
  EXPECT_TRUE(contains(wait_for_loss(1), "sendmsg failed: "));
  EXPECT_TRUE(received(1) == messages);
}

TEST_F(TcpWithRawPeer, MemoryForgottenInTheMiddleOfAReceiveIsNotWritten) {
  const auto messages = make_messages({200'000, 77});
  const auto bytes = join(messages);
  std::vector<std::byte> memory(200'000);
  rank.sink.on_place = [&](std::uint32_t, const Frame& frame) {
    return frame.length == memory.size() ? memory.data() : nullptr;
  };
  std::vector<std::size_t> payload_sizes;
  rank.sink.on_arrived = [&](auto, auto, const Frame&, std::span<const std::byte> payload) {
    payload_sizes.push_back(payload.size());
  };
  write(1, std::span(bytes).first(100'000));
  ASSERT_TRUE(rank.drive_until([&] { return memory[90'000] != std::byte{}; }));
  link().forget(std::span(memory).subspan(150'000, 1));
  const std::vector<std::byte> before = memory;
  write(1, std::span(bytes).subspan(100'000));
  ASSERT_TRUE(wait_for(2));
  EXPECT_TRUE(memory == before);
  EXPECT_EQ(payload_sizes, (std::vector<std::size_t>{0, 77})) << "frames are still counted";
  EXPECT_TRUE(received(1).back() == messages.back());
}

TEST_F(TcpWithRawPeer, MemoryForgottenInTheMiddleOfASendIsNotRead) {
  std::vector<std::byte> expected;
  std::vector<std::unique_ptr<Message>> sent;
  while (link().ready(1)) {
    sent.push_back(std::make_unique<Message>(make_message(0, kRank, 1, sent.size(), 200'000)));
    if (!link().send(1, sent.back()->frame, sent.back()->payload)) break;
    const auto bytes = wire_bytes(*sent.back());
    expected.insert(expected.end(), bytes.begin(), bytes.end());
  }
  for (const auto& message : sent) {
    link().forget(message->payload);
    message->payload.assign(message->payload.size(), std::byte{0xee});
  }
  sent.clear();
  std::vector<std::byte> read;
  EXPECT_TRUE(rank.drive_until([&] {
    const auto bytes = peer->read(1);
    read.insert(read.end(), bytes.begin(), bytes.end());
    return read.size() >= expected.size() || !rank.sink.lost.empty() ? true : (rank.poll(), false);
  }));
  EXPECT_TRUE(read == expected);
}

TEST_F(TcpWithRawPeer, TheSinkMayCloseTheTransportWhileItIsCalled) {
  rank.sink.on_arrived = [&](auto, auto, const auto&, const auto&) { rank.transport->close(); };
  const auto messages = make_messages({10, 10, 10});
  peer->write(0, join(messages));
  peer->write(1, join(messages));
  ASSERT_TRUE(wait_for(1));
  while (rank.poll()) {
  }
  EXPECT_EQ(rank.sink.num_received, 1U);
  EXPECT_TRUE(rank.sink.lost.empty()) << "it was not lost, it was closed";
  EXPECT_FALSE(link().alive(0));
  EXPECT_FALSE(link().ready(1));
}

TEST_F(TcpWithRawPeer, AForkedChildDoesNotKeepTheConnectionOpen) {
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe(gate.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // lives until the parent has seen the end of the connection
    char byte = 0;
    ::close(gate[1]);
    ::_exit(::read(gate[0], &byte, 1) == 0 ? 0 : 1);
  }
  peer.reset();
  EXPECT_TRUE(wait_for_loss(0).ends_with("was closed by the peer"));
  ::close(gate[1]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(gate[0]);
}

TEST(Tcp, OnePollDoesABoundedAmountOfWork) {
  TransportWorld world(tcp_family("IPv4", {.num_streams = 2}), 2);
  std::uint64_t bytes = 0;
  world[1].sink.on_arrived = [&](auto, auto, const Frame& frame, const auto&) {
    bytes += sizeof(Frame) + frame.length;
  };
  constexpr std::uint64_t kMost =
      3 * (FrameReader::kBytesPerRead + 2 * (kMaxSegmentBytes + sizeof(Frame)));
  std::uint64_t most = 0;
  for (int round = 0; round < 3; ++round) {
    for (const std::uint32_t stream : {0U, 1U, 2U}) world.fill(0, 1, stream, kMaxSegmentBytes);
    bytes = 0;
    while (world[1].poll()) most = std::max(most, std::exchange(bytes, 0));
  }
  EXPECT_LE(most, kMost);
  EXPECT_GT(most, kMost / 100);
  world.expect_delivered();
}

TEST(Tcp, LinksSayWhereTheyLead) {
  const TransportWorld world(tcp_family("IPv6", {.bind = {"::1"}}), 2);
  EXPECT_TRUE(world[0].link(1).describe().starts_with("tcp [::1]:"));
  EXPECT_TRUE(world[1].link(0).describe().ends_with(" (lo)")) << world[1].link(0).describe();
  EXPECT_FALSE(world[0].link(1).copies_payload());
}

}  // namespace
}  // namespace slipstream::test
