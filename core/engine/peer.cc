#include "engine/peer.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "engine/operation.h"

namespace slipstream {
namespace {
constexpr std::uint64_t kControlPerAcknowledgement = 16;
}  // namespace

/// The order of an operation's segments. Over links that copy, the last step comes first, because
/// its data have just been summed and are still in cache. Over other links, the first step comes
/// first, because delayed data must pass through all later steps.
bool Peer::Later::operator()(const Segment& a, const Segment& b) const {
  const auto key = [&](const Segment& s) {
    return std::make_tuple(-s.operation->request().priority, s.operation->order(),
                           link_copies ? ~s.step : s.step, s.index);
  };
  return key(a) > key(b);
}

void Peer::connect(Link& link, TimePoint now) {
  link_ = &link;
  ready_ = Ready(Later{link.copies_payload()});
  streams_.resize(link.num_streams());
  order_.resize(link.num_streams() - 1);
  std::iota(order_.begin(), order_.end(), 1U);
  in_use_ = link.num_streams() - 1;
  heard_ = sent_ = now;
  silence_.forget(now);
}

void Peer::leave(std::string why) {
  left_ = true;
  ended_ = Clock::now();
  why_gone_ = std::move(why);
  // The link may still read frames that it has accepted, so they stay until they are acknowledged.
  control_.resize(unsent_);
}

void Peer::mark_gone(std::string why) {
  gone_ = true;
  if (!left_) {
    ended_ = Clock::now();
    why_gone_ = std::move(why);
  }
  // Its connections may still be open, with a frame half sent.
  if (link_ != nullptr) {
    link_->give_up();
    for (const Control& control : control_) link_->forget(control.payload);
  }
  drop_unsent();
}

void Peer::drop_unsent() {
  control_.clear();
  unsent_ = 0;
  ready_ = Ready(Later{link_ != nullptr && link_->copies_payload()});
  for (Stream& stream : streams_) {
    stream.unacknowledged.clear();
    stream.pace = {};
  }
}

void Peer::send_heartbeat(TimePoint now) {
  Frame frame;
  frame.kind = FrameKind::kHeartbeat;
  if (link_->ready(control_stream_) && write(control_stream_, frame, {})) sent_ = now;
}

bool Peer::write(std::uint32_t stream, Frame& frame, std::span<const std::byte> payload) {
  frame.epoch = epoch_;
  frame.ack = received_number_;
  if (!link_->send(stream, frame, payload)) return false;
  acknowledged_number_ = received_number_;
  const std::uint64_t bytes = sizeof(Frame) + payload.size();
  (is_local() ? stats_.shm_bytes_sent : stats_.network_bytes_sent) += bytes;
  bytes_sent_ += bytes;
  return true;
}

void Peer::send_control(Frame frame, std::span<const std::byte> payload) {
  if (!available()) return;
  frame.control = next_number_++;
  frame.length = static_cast<std::uint32_t>(payload.size());
  // The fast path of small messages: over a link that copies, nothing must be kept.
  if (link_->copies_payload() && control_.empty() && link_->ready(control_stream_) &&
      write(control_stream_, frame, payload)) {
    return;
  }
  control_.push_back({.frame = frame, .payload = {payload.begin(), payload.end()}});
  pump_control();
}

void Peer::send_segment(Segment segment) {
  if (available()) queue(std::move(segment));
}

void Peer::queue(Segment segment) {
  segment.operation->note_queued(segment.step);
  ready_.push(std::move(segment));
}

bool Peer::pump(TimePoint now) {
  if (!reachable()) return false;
  const bool control = pump_control();
  const bool segments = pump_segments(now);
  if (control || segments) sent_ = now;
  return control || segments;
}

bool Peer::pump_control() {
  bool any = false;
  while (unsent_ < control_.size() && link_->ready(control_stream_)) {
    Control& control = control_[unsent_];
    if (!write(control_stream_, control.frame, control.payload)) break;
    any = true;
    if (link_->copies_payload()) {
      control_.pop_front();
    } else {
      ++unsent_;
    }
  }
  return any;
}

void Peer::use_streams(std::uint32_t count) {
  count = std::min(count, static_cast<std::uint32_t>(order_.size()));
  if (count == in_use_) return;
  const auto end = order_.begin() + static_cast<std::ptrdiff_t>(in_use_);
  std::stable_sort(order_.begin(), end, [&](std::uint32_t a, std::uint32_t b) {
    return streams_[a].sent > streams_[b].sent;
  });
  for (Stream& stream : streams_) stream.sent = 0;
  in_use_ = count;
}

/// A stream that accepts a segment now. A stream that is not in use is taken only if no stream in
/// use is left, and the control stream only if there is no other.
std::uint32_t Peer::find_stream(TimePoint now) const {
  const std::uint32_t quickest =
      quickest_stream(*link_, std::span(order_).first(in_use_),
                      [&](std::uint32_t stream) { return streams_[stream].pace.delay(now); });
  if (quickest != kNoStream) return quickest;
  bool bulk_alive = std::ranges::any_of(std::span(order_).first(in_use_),
                                        [&](auto stream) { return link_->alive(stream); });
  if (bulk_alive) return kNoStream;
  for (std::uint32_t stream = 1; stream < streams_.size(); ++stream) {
    if (link_->ready(stream)) return stream;
    bulk_alive = bulk_alive || link_->alive(stream);
  }
  return !bulk_alive && link_->ready(0) ? 0 : kNoStream;
}

/// If sending means copying, one segment at a time is sent, because frames that arrive meanwhile
/// decide which segment should come next.
bool Peer::pump_segments(TimePoint now) {
  bool any = false;
  waits_ = false;
  while (!ready_.empty() && !(any && link_->copies_payload())) {
    if (source_.is_cancelled(ready_.top())) {
      ready_.pop();
      continue;
    }
    if (!ready_.top().operation->keeps_pace(ready_.top().step)) break;
    const std::uint32_t stream = find_stream(now);
    waits_ = stream == kNoStream;
    if (waits_) break;
    Frame frame = source_.frame_of(ready_.top());
    if (!write(stream, frame, source_.payload_of(ready_.top()))) break;
    any = true;
    streams_[stream].sent += frame.length;
    Segment segment = ready_.top();
    segment.bytes = frame.length;
    ready_.pop();
    segment.operation->note_sent(segment.step);
    if (link_->copies_payload()) {
      source_.segment_done(segment);
    } else {
      streams_[stream].pace.sent(now);
      streams_[stream].unacknowledged.push_back(std::move(segment));
    }
  }
  return any;
}

bool Peer::has_unacknowledged() const {
  return !control_.empty() || std::ranges::any_of(streams_, [](const Stream& stream) {
    return !stream.unacknowledged.empty();
  });
}

void Peer::drop_acknowledged_control(std::uint64_t number) {
  while (unsent_ > 0 && control_.front().frame.control <= number) {
    // This may acknowledge an earlier copy, while the link still refers to the last one.
    if (control_.front().is_repeated || link_->holds(control_stream_)) {
      link_->forget(control_.front().payload);
    }
    control_.pop_front();
    --unsent_;
  }
}

bool Peer::accept(const Frame& frame, std::uint32_t stream, TimePoint now) {
  silence_.ended(now - heard_, now);
  heard_ = now;
  const std::uint64_t bytes = sizeof(Frame) + frame.length;
  (is_local() ? stats_.shm_bytes_received : stats_.network_bytes_received) += bytes;
  bytes_received_ += bytes;
  drop_acknowledged_control(frame.ack);
  if (frame.kind == FrameKind::kSegment) ++streams_[stream].received;
  if (frame.control == 0) return true;
  if (frame.control <= received_number_) return false;
  received_number_ = frame.control;
  return true;
}

bool Peer::acknowledge_segments(const Frame& frame, TimePoint now) {
  const std::uint32_t stream = frame.stream;
  // The count of a connection that was lost says nothing about the present one.
  if (stream >= streams_.size() || frame.sequence != link_->tag(stream)) return true;
  const std::uint64_t count = frame.offset;
  Stream& acknowledged = streams_[stream];
  // The memory of an acknowledged segment is free, so a half-written one must not be among them.
  const std::size_t in_flight = acknowledged.unacknowledged.size();
  const std::size_t written = in_flight - (in_flight > 0 && link_->holds(stream) ? 1 : 0);
  if (count > acknowledged.acknowledged + written) return !link_->alive(stream);
  if (count > acknowledged.acknowledged) {
    acknowledged.pace.acknowledged(count - acknowledged.acknowledged, now);
  }
  while (acknowledged.acknowledged < count && !acknowledged.unacknowledged.empty()) {
    ++acknowledged.acknowledged;
    const Segment segment = std::move(acknowledged.unacknowledged.front());
    acknowledged.unacknowledged.pop_front();
    delivered_ += segment.bytes;
    if (!source_.is_cancelled(segment)) source_.segment_done(segment);
  }
  return true;
}

void Peer::send_acknowledgements(bool all) {
  if (!reachable() || link_->copies_payload()) return;
  bool written = false;
  for (std::uint32_t stream = 0; stream < streams_.size(); ++stream) {
    Stream& received = streams_[stream];
    if (received.reported == received.received || !link_->ready(control_stream_)) continue;
    Frame frame;
    frame.kind = FrameKind::kAck;
    frame.stream = static_cast<std::uint16_t>(stream);
    frame.sequence = link_->tag(stream);
    frame.offset = received.received;
    if (!write(control_stream_, frame, {})) continue;
    received.reported = received.received;
    written = true;
  }
  const std::uint64_t due = received_number_ - acknowledged_number_;
  if (written || due == 0 || (!all && due < kControlPerAcknowledgement)) return;
  Frame frame;
  frame.kind = FrameKind::kHeartbeat;
  if (link_->ready(control_stream_)) write(control_stream_, frame, {});
}

bool Peer::lose_stream(std::uint32_t stream) {
  ++stats_.streams_lost;
  Stream& lost = streams_[stream];
  for (Segment& segment : lost.unacknowledged) {
    ++stats_.segments_sent_again;
    queue(std::move(segment));
  }
  lost.unacknowledged.clear();
  lost.pace = {};
  // Acknowledgements in flight are lost with the stream. They are counts, so they are simply
  // repeated.
  acknowledged_number_ = 0;
  for (Stream& each : streams_) each.reported = 0;
  for (std::uint32_t each = 0; each < streams_.size(); ++each) {
    if (each == stream || !link_->alive(each)) continue;
    if (stream == control_stream_) move_control_to(each);
    return true;
  }
  return false;
}

void Peer::open_stream(std::uint32_t stream) {
  ++stats_.streams_reopened;
  Stream& opened = streams_[stream];
  opened.acknowledged = opened.received = opened.reported = 0;  // counts of the lost connection
  if (stream == 0 || !link_->alive(control_stream_) || control_stream_ == stream) {
    move_control_to(stream);
  }
}

/// Frames that are not acknowledged are sent again, so that the peer gets all of them in order on
/// the new stream.
void Peer::move_control_to(std::uint32_t stream) {
  control_stream_ = stream;
  for (std::size_t i = 0; i < unsent_; ++i) control_[i].is_repeated = true;
  unsent_ = 0;
}

}  // namespace slipstream
