#include "send_comm.h"

#include <utility>

namespace slipstream::nccl {
namespace {

constexpr std::uint32_t kReceiver = 0, kSender = 1;  // ranks of the world of two

std::string name_of(const Handle& handle) {
  return handle.rank == Handle::kUnknownRank ? "the receiver" : concat("rank ", handle.rank);
}

TcpOptions dials_only(const Log& log) {
  TcpOptions options;
  options.bind.clear();
  options.log = log;
  return options;
}

}  // namespace

SendComm::SendComm(const Options& options, const Handle& handle, const Log& log)
    : Comm(options, kSender, handle.epoch, dials_only(log), name_of(handle)) {
  transport().dial(kReceiver, endpoints_of(handle));
}

void SendComm::connected(std::uint32_t peer, Link& link) {
  Comm::connected(peer, link);
  flight_.emplace(link);
}

void SendComm::take(Request& request, std::uint64_t /*number*/) {
  messages_.push_back({.request = &request, .segments = std::nullopt, .next = 0});
}

void SendComm::take_frame(std::uint32_t /*stream*/, const Frame& frame,
                          std::span<const std::byte> /*payload*/) {
  switch (frame.kind) {
    case FrameKind::kPost:
      return take_post(frame);
    case FrameKind::kAck:
      return take_acknowledgement(frame);
    default:
      break_off(frame, "which a receiver does not send");
  }
}

/// Posts come in order. After the control stream has died, some come again.
void SendComm::take_post(const Frame& frame) {
  if (frame.sequence < num_posts_) return;
  if (frame.sequence > num_posts_ || posts_.size() > 2 * kMaxRequests ||
      frame.step < kMinSegmentBytes || frame.step > kMaxSegmentBytes) {
    break_off(frame, concat("but message ", num_posts_, " in segments of ", kMinSegmentBytes,
                            " to ", kMaxSegmentBytes, " bytes is next"));
  }
  ++num_posts_;
  posts_.push_back({.room = frame.offset, .segment_bytes = frame.step});
}

void SendComm::take_acknowledgement(const Frame& frame) {
  for (const SegmentId id : flight_->acknowledge(frame.stream, frame.offset, Clock::now())) {
    deliver(id);
  }
}

void SendComm::deliver(SegmentId id) {
  Message* const message = find(id.message);
  if (message == nullptr || message->segments->complete()) return;
  message->segments->deliver(id.index);
  if (!message->segments->complete()) return;
  // A segment that was sent again may be half written.
  link().forget(message->request->memory);
  message->request->complete(message->segments->message_bytes());
  while (!messages_.empty() && messages_.front().segments &&
         messages_.front().segments->complete()) {
    messages_.pop_front();
    ++first_;
  }
}

/// The message, or nullptr if it is acknowledged and forgotten.
SendComm::Message* SendComm::find(std::uint64_t number) {
  return number < first_ ? nullptr : &messages_[number - first_];
}

void SendComm::lose(std::uint32_t stream) {
  const auto& lost = flight_->of(stream);
  again_.insert(again_.end(), lost.begin(), lost.end());
}

void SendComm::advance(TimePoint now) {
  for (auto next = next_segment(); next && send(*next, now); next = next_segment()) {
  }
}

/// The segment that should be sent next; nothing if all are sent, or not posted yet.
std::optional<SegmentId> SendComm::next_segment() {
  for (; !again_.empty(); again_.pop_front()) {
    const Message* const message = find(again_.front().message);
    if (message != nullptr && !message->segments->is_delivered(again_.front().index)) {
      return again_.front();
    }
  }
  for (; current_ < first_ + messages_.size(); ++current_) {
    if (current_ < first_) continue;
    Message& message = *find(current_);
    if (!message.segments && !cut(message)) return std::nullopt;
    if (message.next < message.segments->count()) return SegmentId{current_, message.next};
  }
  return std::nullopt;
}

/// Cuts a message into segments. Returns false if the receiver has not posted it yet.
bool SendComm::cut(Message& message) {
  if (posts_.empty()) return false;
  const Post post = posts_.front();
  posts_.pop_front();
  const std::size_t bytes = message.request->memory.size();
  if (bytes > post.room) {
    fail(ErrorKind::kUsage, "message ", current_, " has ", bytes,
         " bytes, but the receiver has room for ", post.room,
         "; both ranks must call the same operations with the same sizes");
  }
  message.segments.emplace(bytes, post.segment_bytes);
  return true;
}

/// Returns false if no stream can take the segment now.
bool SendComm::send(SegmentId id, TimePoint now) {
  const Message& message = *find(id.message);
  Frame frame;
  frame.kind = FrameKind::kSegment;
  frame.sequence = id.message;
  frame.group = message.segments->message_bytes();
  frame.offset = message.segments->offset_of(id.index);
  frame.length = message.segments->bytes_of(id.index);
  const auto payload = message.request->memory.subspan(frame.offset, frame.length);
  while (true) {
    const std::uint32_t stream = flight_->choose(now);
    if (stream == kNoStream) return false;
    if (!link().send(stream, frame, payload)) continue;  // it is not ready any more
    flight_->sent(stream, id, now);
    note_sent(id);
    return true;
  }
}

void SendComm::note_sent(SegmentId id) {
  if (!again_.empty()) {
    again_.pop_front();
  } else {
    find(id.message)->next = id.index + 1;
  }
}

}  // namespace slipstream::nccl
