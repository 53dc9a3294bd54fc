#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/silence.h"
#include "slipstream/stats.h"
#include "transport/pace.h"
#include "transport/transport.h"

namespace slipstream {

class Operation;

/// A piece of a send step, which any stream may send.
struct Segment {
  std::shared_ptr<Operation> operation;
  std::uint32_t step = 0;
  std::uint32_t index = 0;
  std::uint32_t bytes = 0;  ///< payload bytes, once it is sent
};

/// A control frame with its small payload. It is kept until the peer has acknowledged it.
struct Control {
  Frame frame;
  std::vector<std::byte> payload;
  bool is_repeated = false;  ///< whether it was sent before, on a stream that has died since
};

/// The part of the engine that a peer uses.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual Frame frame_of(const Segment& segment) = 0;
  virtual std::span<const std::byte> payload_of(const Segment& segment) = 0;
  [[nodiscard]] virtual bool is_cancelled(const Segment& segment) const = 0;
  /// Announces that the segment's memory is free again; the peer has the data or is sure to get
  /// them.
  virtual void segment_done(const Segment& segment) = 0;
};

/// One other rank, as the engine sees it: data that must still be sent to it, and data that it has
/// not yet acknowledged.
///
/// Control frames form one reliable sequence over one stream at a time. They are numbered, kept
/// until acknowledged, and moved in order to another stream if theirs dies. Segments are sent on
/// any stream that accepts bytes, and are acknowledged by count for each stream. If a stream dies,
/// its segments go back to the queue. Over links that copy (shm), neither is kept.
class Peer {
 public:
  Peer(std::uint32_t rank, std::uint32_t epoch, SegmentSource& source, Stats& stats)
      : rank_(rank), epoch_(epoch), source_(source), stats_(stats) {}

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] bool reachable() const { return link_ != nullptr && !gone_; }
  /// Whether the peer is reachable and not about to leave.
  [[nodiscard]] bool available() const { return reachable() && !left_; }
  [[nodiscard]] bool gone() const { return gone_; }
  [[nodiscard]] bool left() const { return left_; }
  [[nodiscard]] bool is_local() const { return link_ != nullptr && link_->copies_payload(); }
  [[nodiscard]] const std::string& why_gone() const { return why_gone_; }
  [[nodiscard]] Link* link() const { return link_; }

  void connect(Link& link, TimePoint now);
  /// Records that the peer said goodbye: it still gets acknowledgements, and nothing else.
  void leave(std::string why);
  void mark_gone(std::string why);

  /// Numbers the frame and sends it, now or once that is possible. The payload is copied.
  void send_control(Frame frame, std::span<const std::byte> payload);
  void send_segment(Segment segment);
  void send_heartbeat(TimePoint now);
  /// Sets how many streams carry segments from now on; the fastest ones are used.
  void use_streams(std::uint32_t count);
  /// Whether segments are waiting for a stream.
  [[nodiscard]] bool waits() const { return waits_; }
  /// Bytes of segments that were acknowledged since the last call.
  std::uint64_t take_delivered() { return std::exchange(delivered_, 0); }
  /// Sends as much as the streams accept. Returns whether anything was sent.
  bool pump(TimePoint now);
  [[nodiscard]] bool has_unsent() const { return unsent_ < control_.size() || !ready_.empty(); }
  [[nodiscard]] bool has_unacknowledged() const;

  /// Returns false if the frame is a repetition, which is sent after a stream has died.
  bool accept(const Frame& frame, std::uint32_t stream, TimePoint now);
  /// Returns false if the peer acknowledges segments that were not sent.
  [[nodiscard]] bool acknowledge_segments(const Frame& frame, TimePoint now);
  /// Sends the acknowledgements that are due. Control frames are acknowledged only if there are
  /// many of them, or with `all`.
  void send_acknowledgements(bool all);

  /// Puts the stream's segments in flight back into the queue. Returns whether any stream is left.
  bool lose_stream(std::uint32_t stream);
  /// Uses a lost stream again, which has a new connection.
  void open_stream(std::uint32_t stream);
  std::string why_cut;  ///< the reason of the last loss

  // The eager pool: bytes that a receiver keeps for operations that it has not posted yet.
  std::uint64_t eager_sent = 0, eager_credited = 0;                         // sent by this rank
  std::uint64_t eager_arrived = 0, eager_consumed = 0, eager_reported = 0;  // sent by the peer

  [[nodiscard]] TimePoint heard() const { return heard_; }
  void forgive_silence(TimePoint now) {
    heard_ = now;
    silence_.forget(now);
  }
  /// The time for which the peer may be silent: `most`, or less where it has been regular.
  [[nodiscard]] Nanoseconds patience(Nanoseconds most) const { return silence_.patience(most); }
  [[nodiscard]] TimePoint sent() const { return sent_; }
  /// The time at which it left or was gone.
  [[nodiscard]] TimePoint ended() const { return ended_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct Later {
    bool link_copies = true;
    bool operator()(const Segment& a, const Segment& b) const;
  };
  using Ready = std::priority_queue<Segment, std::vector<Segment>, Later>;
  struct Stream {
    std::deque<Segment> unacknowledged;
    std::uint64_t sent = 0;          // bytes since streams were last compared
    std::uint64_t acknowledged = 0;  // of our segments, by the peer
    std::uint64_t received = 0;      // of the peer's segments, by this rank
    std::uint64_t reported = 0;      // of the received ones, to the peer
    Pace pace;
  };

  void queue(Segment segment);
  void drop_unsent();
  bool pump_control();
  bool pump_segments(TimePoint now);
  void drop_acknowledged_control(std::uint64_t number);
  void move_control_to(std::uint32_t stream);
  bool write(std::uint32_t stream, Frame& frame, std::span<const std::byte> payload);
  [[nodiscard]] std::uint32_t find_stream(TimePoint now) const;

  const std::uint32_t rank_;
  const std::uint32_t epoch_;
  SegmentSource& source_;
  Stats& stats_;
  Link* link_ = nullptr;
  bool gone_ = false, left_ = false;
  std::string why_gone_;
  TimePoint heard_{}, sent_{}, ended_{};
  std::uint64_t bytes_sent_ = 0, bytes_received_ = 0;
  Silence silence_;

  std::deque<Control> control_;  // unacknowledged frames, then unsent ones (from unsent_ on)
  std::size_t unsent_ = 0;
  std::uint32_t control_stream_ = 0;
  std::uint64_t next_number_ = 1;
  std::uint64_t received_number_ = 0, acknowledged_number_ = 0;  // of the peer's control frames

  Ready ready_;
  std::vector<Stream> streams_;
  std::vector<std::uint32_t> order_;  // streams for segments, with the fastest first
  std::uint32_t in_use_ = 0;          // number of streams in use, from the first
  bool waits_ = false;
  std::uint64_t delivered_ = 0;
};

}  // namespace slipstream
