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
#include "slipstream/stats.h"
#include "transport/transport.h"

namespace slipstream {

class Operation;

/// A piece of a send step, to be written by whichever stream can take it.
struct Segment {
  std::shared_ptr<Operation> operation;
  std::uint32_t step = 0;
  std::uint32_t index = 0;
  std::uint32_t bytes = 0;  ///< of its payload, once it is sent
};

/// A control frame with its (small) payload. It is kept until the peer has acknowledged it.
struct Control {
  Frame frame;
  std::vector<std::byte> payload;
};

/// What a peer needs to know of the engine.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual Frame frame_of(const Segment& segment) = 0;
  virtual std::span<const std::byte> payload_of(const Segment& segment) = 0;
  [[nodiscard]] virtual bool is_cancelled(const Segment& segment) const = 0;
  /// The memory of the segment is free again and the peer has it, or is sure to get it.
  virtual void segment_done(const Segment& segment) = 0;
};

/// One other rank, as the engine sees it: what is still to be sent to it and what it has not yet
/// acknowledged.
///
/// Control frames are one reliable sequence over one stream at a time; they carry numbers, are kept
/// until acknowledged, and move to another stream in order when theirs dies. Segments go to any
/// stream that can take bytes and are acknowledged by count for each stream; those of a stream that
/// died go back to the queue. Over links that copy (shm) neither is kept.
class Peer {
 public:
  Peer(std::uint32_t rank, std::uint32_t epoch, SegmentSource& source, Stats& stats)
      : rank_(rank), epoch_(epoch), source_(source), stats_(stats) {}

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] bool reachable() const { return link_ != nullptr && !gone_; }
  /// Reachable and not about to leave.
  [[nodiscard]] bool available() const { return reachable() && !left_; }
  [[nodiscard]] bool gone() const { return gone_; }
  [[nodiscard]] bool left() const { return left_; }
  [[nodiscard]] bool is_local() const { return link_ != nullptr && link_->copies_payload(); }
  [[nodiscard]] const std::string& why_gone() const { return why_gone_; }
  [[nodiscard]] Link* link() const { return link_; }

  void connect(Link& link, TimePoint now);
  /// It said goodbye: it is owed acknowledgements, and nothing else.
  void leave(std::string why);
  void mark_gone(std::string why);

  /// Numbers the frame and sends it, or keeps it until it can be sent. The payload is copied.
  void send_control(Frame frame, std::span<const std::byte> payload);
  void send_segment(Segment segment);
  void send_heartbeat(TimePoint now);
  /// How many streams carry segments from now on: the fastest ones.
  void use_streams(std::uint32_t count);
  /// Segments wait until a stream can take them.
  [[nodiscard]] bool waits() const { return waits_; }
  /// Bytes of segments that were acknowledged since the last call.
  std::uint64_t take_delivered() { return std::exchange(delivered_, 0); }
  /// Sends what the streams take. True when anything was sent.
  bool pump(TimePoint now);
  [[nodiscard]] bool has_unsent() const { return unsent_ < control_.size() || !ready_.empty(); }
  [[nodiscard]] bool has_unacknowledged() const;

  /// False when the frame has been seen before (it was sent again after a stream had died).
  bool accept(const Frame& frame, std::uint32_t stream, TimePoint now);
  void acknowledge_segments(std::uint32_t stream, std::uint64_t count, TimePoint now);
  /// Sends the acknowledgements that are due; those of control frames only when many are or `all`.
  void send_acknowledgements(bool all);

  /// Puts what was in flight on the stream back into the queue. False when none is left.
  bool lose_stream(std::uint32_t stream);

  // The eager pool: bytes that the peer holds for operations it has not posted yet.
  std::uint64_t eager_sent = 0, eager_credited = 0;      // by us, to it
  std::uint64_t eager_consumed = 0, eager_reported = 0;  // by it, to us

  [[nodiscard]] TimePoint heard() const { return heard_; }
  void forgive_silence(TimePoint now) { heard_ = now; }
  [[nodiscard]] TimePoint sent() const { return sent_; }

 private:
  struct Later {
    bool link_copies = true;
    bool operator()(const Segment& a, const Segment& b) const;
  };
  using Ready = std::priority_queue<Segment, std::vector<Segment>, Later>;
  struct Stream {
    std::deque<Segment> unacknowledged;
    std::uint64_t sent = 0;          // bytes, since streams were last compared
    std::uint64_t acknowledged = 0;  // of ours, by the peer
    std::uint64_t received = 0;      // of the peer's, by us
    std::uint64_t reported = 0;      // of those, told to the peer
    Nanoseconds pace{};              // from one acknowledgement to the next, about
    TimePoint moved{};               // the last one, or when the stream began to carry again

    /// How long one segment more would take to be acknowledged, as far as is known.
    [[nodiscard]] Nanoseconds delay(TimePoint now) const {
      const auto pending = static_cast<Nanoseconds::rep>(unacknowledged.size());
      return (pending + 1) * (pending > 0 ? std::max(pace, now - moved) : pace);
    }
  };

  void queue(Segment segment);
  void drop_unsent();
  bool pump_control();
  bool pump_segments(TimePoint now);
  void drop_acknowledged_control(std::uint64_t number);
  bool write(std::uint32_t stream, Frame& frame, std::span<const std::byte> payload);
  [[nodiscard]] std::uint32_t find_stream(TimePoint now) const;
  [[nodiscard]] std::uint32_t find_quickest(TimePoint now) const;

  const std::uint32_t rank_;
  const std::uint32_t epoch_;
  SegmentSource& source_;
  Stats& stats_;
  Link* link_ = nullptr;
  bool gone_ = false, left_ = false;
  std::string why_gone_;
  TimePoint heard_{}, sent_{};

  std::deque<Control> control_;  // unacknowledged ones, then those from unsent_ on
  std::size_t unsent_ = 0;
  std::uint32_t control_stream_ = 0;
  std::uint64_t next_number_ = 1;
  std::uint64_t received_number_ = 0, acknowledged_number_ = 0;  // of the peer's control frames

  Ready ready_;
  std::vector<Stream> streams_;
  std::vector<std::uint32_t> order_;  // streams for segments, the fastest first
  std::uint32_t in_use_ = 0;          // of those, from the first
  bool waits_ = false;
  std::uint64_t delivered_ = 0;
};

}  // namespace slipstream
