#include "test/transport_world.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <random>
#include <stdexcept>
#include <thread>

namespace slipstream::test {
namespace {

constexpr int kPollsUntilFull = 64;  // polls that move nothing before a stream counts as full
// Bytes; beyond it there would be no back-pressure.
constexpr std::size_t kMostHeld = 256 * 1024 * 1024;

}  // namespace

bool Message::operator==(const Message& other) const {
  return std::memcmp(&frame, &other.frame, sizeof frame) == 0 && payload == other.payload;
}

Message make_message(std::uint32_t from, std::uint32_t to, std::uint32_t stream, std::size_t index,
                     std::uint32_t payload_bytes) {
  std::mt19937_64 random((std::uint64_t{from} << 48) ^ (std::uint64_t{to} << 32) ^
                         (std::uint64_t{stream} << 24) ^ index);
  Message message;
  message.frame = {.kind = FrameKind::kSegment,
                   .flags = static_cast<std::uint8_t>(random()),
                   .stream = static_cast<std::uint16_t>(random()),
                   .length = payload_bytes,
                   .epoch = static_cast<std::uint32_t>(random()),
                   .step = static_cast<std::uint32_t>(random()),
                   .group = random(),
                   .sequence = random(),
                   .offset = random(),
                   .fingerprint = random(),
                   .control = random(),
                   .ack = random()};
  message.payload.resize(payload_bytes);
  for (std::size_t begin = 0; begin < payload_bytes; begin += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(message.payload.data() + begin, &word,
                std::min(sizeof word, payload_bytes - begin));
  }
  return message;
}

void RecordingSink::connected(std::uint32_t peer, Link& link) {
  EXPECT_FALSE(links.contains(peer)) << "rank " << peer << " connected twice";
  links[peer] = &link;
}

void RecordingSink::refused(std::uint32_t peer, const std::string& reason) {
  ADD_FAILURE() << "rank " << peer << " was refused: " << reason;
}

std::byte* RecordingSink::place(std::uint32_t peer, const Frame& frame) {
  ++num_placed;
  EXPECT_TRUE(links.contains(peer));
  return on_place ? on_place(peer, frame) : nullptr;
}

void RecordingSink::arrived(std::uint32_t peer, std::uint32_t stream, const Frame& frame,
                            std::span<const std::byte> payload) {
  EXPECT_TRUE(links.contains(peer)) << "frame of rank " << peer << ", which never connected";
  EXPECT_FALSE(lost.contains({peer, stream})) << "frame on lost stream " << stream;
  received[{peer, stream}].push_back({frame, {payload.begin(), payload.end()}});
  ++num_received;
  if (on_arrived) on_arrived(peer, stream, frame, payload);
}

void RecordingSink::stream_lost(std::uint32_t peer, std::uint32_t stream,
                                const std::string& reason) {
  EXPECT_FALSE(lost.contains({peer, stream})) << "stream " << stream << " lost twice";
  EXPECT_FALSE(links.at(peer)->alive(stream)) << "stream " << stream << " lost, but alive";
  EXPECT_FALSE(reason.empty());
  lost[{peer, stream}] = reason;
}

void RecordingSink::stream_opened(std::uint32_t peer, std::uint32_t stream) {
  EXPECT_TRUE(lost.erase({peer, stream})) << "stream " << stream << " opened, but not lost";
  EXPECT_TRUE(links.at(peer)->alive(stream));
  ++opened[{peer, stream}];
}

void RecordingSink::unreachable(std::uint32_t peer, const std::string& reason) {
  EXPECT_FALSE(unreachable_peers.contains(peer)) << "rank " << peer << " unreachable twice";
  unreachable_peers[peer] = reason;
}

bool TransportRank::drive_until(const Condition& condition) {
  const TimePoint deadline = Clock::now() + kPatience;
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    if (!poll()) sleep(condition, deadline);
  }
  return true;
}

void TransportRank::sleep(const Condition& condition, TimePoint deadline) {
  const int fd = transport->wait_fd();
  doorbell.arm(fd >= 0);
  if (poll() || condition()) return doorbell.disarm();
  const TimePoint until = std::min(transport->next_event(), deadline);
  asleep = true;
  if (fd < 0) {
    doorbell.sleep(until);
  } else {
    const auto left = std::max(until - Clock::now(), Clock::duration::zero()).count();
    const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
    pollfd waiting[] = {{fd, POLLIN, 0}, {doorbell.event_fd(), POLLIN, 0}};
    ::ppoll(waiting, std::size(waiting), &timeout, nullptr);
  }
  asleep = false;
  doorbell.disarm();
}

bool TransportRank::try_send(std::uint32_t peer, std::uint32_t stream,
                             std::uint32_t payload_bytes) {
  payload_bytes = std::min(payload_bytes, family_.max_payload(stream));
  std::vector<Message>& sent_before = sent[{peer, stream}];
  Message message = make_message(rank_, peer, stream, sent_before.size(), payload_bytes);
  if (!link(peer).send(stream, message.frame, message.payload)) return false;
  sent_before.push_back(std::move(message));  // moves the owner of the payload, not the payload
  return true;
}

TransportWorld::TransportWorld(const TransportFamily& family, std::uint32_t world_size)
    : family_(family) {
  std::vector<Doorbell*> doorbells;
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    ranks_.push_back(std::make_unique<TransportRank>(rank, family_));
    doorbells.push_back(&ranks_.back()->doorbell);
  }
  Wires wires = family_.make(doorbells);
  shared_ = std::move(wires.shared);
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    ranks_[rank]->transport = std::move(wires.transports.at(rank));
  }
  const bool connected = poll_until([&] {
    return std::ranges::all_of(
        ranks_, [&](const auto& rank) { return rank->sink.links.size() == world_size - 1; });
  });
  if (!connected) throw std::runtime_error("the ranks of " + family_.name + " did not connect");
  if (world_size > 1) num_streams_ = ranks_[0]->link(1).num_streams();
}

TransportWorld::~TransportWorld() {
  for (const auto& rank : ranks_) rank->transport.reset();
}

bool TransportWorld::poll() {
  bool any = false;
  for (const auto& rank : ranks_) any = rank->poll() || any;
  return any;
}

bool TransportWorld::poll_until(const TransportRank::Condition& condition) {
  const TimePoint deadline = Clock::now() + kPatience;
  while (!condition()) {
    poll();
    if (Clock::now() >= deadline) return false;
  }
  return true;
}

void TransportWorld::send(std::uint32_t from, std::uint32_t to, std::uint32_t stream,
                          std::uint32_t payload_bytes) {
  const Link& link = ranks_[from]->link(to);
  const bool sent = poll_until(
      [&] { return link.ready(stream) && ranks_[from]->try_send(to, stream, payload_bytes); });
  if (!sent) throw std::runtime_error("a stream of " + family_.name + " stays full");
}

std::size_t TransportWorld::fill(std::uint32_t from, std::uint32_t to, std::uint32_t stream,
                                 std::uint32_t payload_bytes) {
  std::size_t num_sent = 0;
  for (int idle_polls = 0; idle_polls < kPollsUntilFull;) {
    if (ranks_[from]->try_send(to, stream, payload_bytes)) {
      ++num_sent;
      idle_polls = 0;
    } else if (!ranks_[from]->poll()) {
      ++idle_polls;
    }
    if (num_sent * (std::min(payload_bytes, max_payload(stream)) + sizeof(Frame)) > kMostHeld) {
      throw std::runtime_error(family_.name + " takes frames without end");
    }
  }
  return num_sent;
}

void TransportWorld::run_threads(const std::function<void(std::uint32_t rank)>& body) {
  std::atomic<std::uint32_t> num_ended{0};
  std::vector<std::thread> threads;
  for (std::uint32_t self = 0; self < size(); ++self) {
    threads.emplace_back([&, self] {
      body(self);
      ++num_ended;
      for (const auto& rank : ranks_) rank->doorbell.bell().ring();
      EXPECT_TRUE(ranks_[self]->drive_until([&] { return num_ended == size(); }));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::size_t TransportWorld::num_sent_to(std::uint32_t rank) const {
  std::size_t count = 0;
  for (const auto& sender : ranks_) {
    for (const auto& [lane, messages] : sender->sent) {
      if (lane.first == rank) count += messages.size();
    }
  }
  return count;
}

bool TransportWorld::all_arrived() const {
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    if (ranks_[rank]->sink.num_received < num_sent_to(rank)) return false;
  }
  return true;
}

void TransportWorld::expect_equal() const {
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    EXPECT_EQ(ranks_[rank]->sink.num_received, num_sent_to(rank)) << "rank " << rank;
    for (const auto& [lane, received] : ranks_[rank]->sink.received) {
      const std::vector<Message>& sent = ranks_[lane.first]->sent[{rank, lane.second}];
      ASSERT_LE(received.size(), sent.size()) << lane.first << " to " << rank;
      for (std::size_t index = 0; index < received.size(); ++index) {
        ASSERT_TRUE(received[index] == sent[index])
            << "message " << index << " from rank " << lane.first << " to " << rank << " on stream "
            << lane.second << ", " << sent[index].payload.size() << " bytes";
      }
    }
  }
}

void TransportWorld::expect_delivered() {
  EXPECT_TRUE(poll_until([this] { return all_arrived(); })) << "frames are missing";
  EXPECT_TRUE(poll_until([this] { return !poll(); }))
      << "poll() keeps saying that it did something";
  expect_equal();
}

std::size_t count_descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(open), end(open)));
}

}  // namespace slipstream::test
