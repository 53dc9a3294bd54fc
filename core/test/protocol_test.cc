// Frames that break the protocol, from a peer that has the job key: the peer is given up, with a
// reason, and nothing is read or written outside of the memory of the operation.

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/doorbell.h"
#include "engine/engine.h"

namespace slipstream {
namespace {

constexpr std::uint32_t kSelf = 0, kPeer = 1;
constexpr std::uint64_t kPool = 4096;

/// A link that takes every frame, and keeps none.
class TakingLink final : public Link {
 public:
  [[nodiscard]] std::uint32_t num_streams() const override { return 2; }
  [[nodiscard]] bool alive(std::uint32_t /*stream*/) const override { return alive_; }
  [[nodiscard]] bool ready(std::uint32_t /*stream*/) const override { return alive_ && !holds_; }
  [[nodiscard]] bool holds(std::uint32_t stream) const override { return holds_ && stream == 1; }
  bool send(std::uint32_t stream, const Frame& frame,
            std::span<const std::byte> /*payload*/) override {
    sent.push_back(frame);
    if (stream == 1 && holds_next) holds_ = true;
    return true;
  }
  [[nodiscard]] bool copies_payload() const override { return false; }
  void forget(std::span<const std::byte> /*memory*/) override {}
  void give_up() override { alive_ = false; }
  [[nodiscard]] std::string describe() const override { return "test"; }

  std::vector<Frame> sent;
  bool holds_next = false;  ///< whether the next segment is only half written

 private:
  bool alive_ = true;
  bool holds_ = false;
};

/// Delivers the frames that a test has put in.
class ScriptedTransport final : public Transport {
 public:
  bool poll(Sink& sink) override {
    if (!std::exchange(connected_, true)) sink.connected(kPeer, link);
    bool any = false;
    while (!frames_.empty()) {
      const auto [frame, payload] = std::move(frames_.front());
      frames_.pop_front();
      sink.arrived(kPeer, frame.kind == FrameKind::kSegment ? 1 : 0, frame, payload);
      any = true;
    }
    return any;
  }
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool has_links() const override { return true; }
  void close() override {}

  void put(Frame frame, std::vector<std::byte> payload = {}) {
    frame.length = static_cast<std::uint32_t>(payload.size());
    frames_.emplace_back(frame, std::move(payload));
  }

  TakingLink link;

 private:
  bool connected_ = false;
  std::deque<std::pair<Frame, std::vector<std::byte>>> frames_;
};

class ProtocolTest : public testing::Test {
 protected:
  ProtocolTest() {
    EngineOptions options;
    options.eager_pool_bytes = kPool;
    options.goodbye_timeout = 10ms;
    engine_ =
        std::make_unique<Engine>(Identity{.rank = kSelf, .world_size = 2, .epoch = 3}, options,
                                 doorbell_, Log([](LogLevel, const std::string&) {}));
    engine_->add_transport(transport_);
    engine_->connect(Clock::now() + 10s);
    group_ = engine_->make_group("world", {0, 1});
  }
  ~ProtocolTest() override { engine_->close(); }

  Request message(Collective collective, std::vector<float>& memory) {
    Request request;
    request.collective = collective;
    request.dtype = DType::kFloat32;
    request.input = request.output = memory.data();
    request.count = memory.size();
    request.root = kPeer;
    request.waits_soon = true;
    return request;
  }
  [[nodiscard]] Frame frame(FrameKind kind, const Request& request) {
    Frame frame;
    frame.kind = kind;
    frame.flags = kPointToPoint;
    frame.epoch = 3;
    frame.group = group_->id();
    frame.offset = request.count * sizeof(float);
    frame.fingerprint = group_->fingerprint(request, kPeer);
    frame.control = next_control_++;
    return frame;
  }
  /// Lets the engine take the frames, and returns why it has given up the peer.
  std::string verdict(Completion& completion) {
    engine_->wait(completion, Clock::now() + 30s);
    const auto lost = engine_->lost_ranks();
    return lost.empty() ? "" : lost[0].second;
  }

  Doorbell doorbell_;
  ScriptedTransport transport_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<Group> group_;
  std::uint64_t next_control_ = 1;
};

TEST_F(ProtocolTest, AMessageWithLessPayloadThanItAnnouncesIsNotRead) {
  std::vector<float> memory(100);
  const Request request = message(Collective::kReceive, memory);
  transport_.put(frame(FrameKind::kEager, request), std::vector<std::byte>(4));
  const auto completion = engine_->submit(group_, request);
  EXPECT_NE(verdict(*completion).find("kind 2 with 4 bytes; it announces 400"), std::string::npos);
  EXPECT_TRUE(completion->error());
}

TEST_F(ProtocolTest, AMessageIsAskedForOnce) {
  std::vector<float> memory(10000);
  const Request request = message(Collective::kSend, memory);
  const auto completion = engine_->submit(group_, request);
  transport_.put(frame(FrameKind::kPost, request));
  transport_.put(frame(FrameKind::kPost, request));
  EXPECT_NE(verdict(*completion).find("for message 0, which it has asked for before"),
            std::string::npos);
}

TEST_F(ProtocolTest, ANumberOfAMessageIsUsedOnce) {
  std::vector<float> one(10000), two(10000);
  const Request request = message(Collective::kReceive, one);
  transport_.put(frame(FrameKind::kRequest, request));
  transport_.put(frame(FrameKind::kRequest, request));
  const auto first = engine_->submit(group_, request);
  const auto second = engine_->submit(group_, message(Collective::kReceive, two));
  EXPECT_NE(verdict(*second).find("for message 0, whose number it has used before"),
            std::string::npos);
  EXPECT_TRUE(engine_->wait(*first, Clock::now() + 30s));
  EXPECT_TRUE(first->error());
}

TEST_F(ProtocolTest, SegmentsThatWereNotSentAreNotAcknowledged) {
  std::vector<float> memory(10000);
  const auto completion = engine_->submit(group_, message(Collective::kSend, memory));
  Frame acknowledgement;
  acknowledgement.kind = FrameKind::kAck;
  acknowledgement.epoch = 3;
  acknowledgement.stream = 1;
  acknowledgement.offset = 1;
  transport_.put(acknowledgement);
  EXPECT_NE(verdict(*completion).find("for 1 segments of stream 1, which were not sent"),
            std::string::npos);
}

TEST_F(ProtocolTest, AHalfWrittenSegmentIsNotAcknowledged) {
  std::vector<float> memory(10000);
  const Request request = message(Collective::kSend, memory);
  transport_.link.holds_next = true;
  const auto completion = engine_->submit(group_, request);
  transport_.put(frame(FrameKind::kPost, request));
  engine_->wait(*completion, Clock::now() + 300ms);
  EXPECT_TRUE(engine_->lost_ranks().empty());
  Frame acknowledgement;
  acknowledgement.kind = FrameKind::kAck;
  acknowledgement.epoch = 3;
  acknowledgement.stream = 1;
  acknowledgement.offset = 1;
  transport_.put(acknowledgement);
  EXPECT_NE(verdict(*completion).find("which were not sent"), std::string::npos);
}

TEST_F(ProtocolTest, APeerMayNotFillMoreThanItsPool) {
  std::vector<float> memory(100), other(1);
  for (std::uint64_t each = 0; each <= kPool / 400; ++each) {
    Frame unexpected = frame(FrameKind::kEager, message(Collective::kReceive, memory));
    unexpected.step = 7;  // a tag for which nobody waits
    transport_.put(unexpected, std::vector<std::byte>(400));
  }
  const auto completion = engine_->submit(group_, message(Collective::kReceive, other));
  EXPECT_NE(verdict(*completion).find("its pool of 4096 bytes has no room"), std::string::npos);
}

}  // namespace
}  // namespace slipstream
