#include "recv_comm.h"

#include <algorithm>
#include <utility>

namespace slipstream::nccl {
namespace {

constexpr std::uint32_t kReceiver = 0;  // its rank in the world of two

TcpOptions listening_on(const std::vector<std::string>& addresses, const Log& log) {
  TcpOptions options;
  options.bind = addresses;
  options.log = log;
  return options;
}

}  // namespace

RecvComm::RecvComm(const Options& options, const std::vector<std::string>& addresses,
                   std::uint32_t epoch, const Log& log)
    : Comm(options, kReceiver, epoch, listening_on(addresses, log), "the sender"),
      segment_bytes_(options.segment_bytes),
      epoch_(epoch),
      rank_(options.rank) {}

Handle RecvComm::handle() {
  Handle handle;
  handle.magic = Handle::kMagic;
  handle.epoch = epoch_;
  handle.rank = rank_.value_or(Handle::kUnknownRank);
  set_endpoints(handle, transport().endpoints());
  return handle;
}

void RecvComm::connected(std::uint32_t peer, Link& link) {
  Comm::connected(peer, link);
  streams_.resize(link.num_streams());
}

void RecvComm::take(Request& request, std::uint64_t /*number*/) {
  messages_.push_back({.request = &request, .segments = std::nullopt});
}

/// The message of a segment, or nullptr if it is complete: then the segment was sent again although
/// it had arrived.
RecvComm::Message* RecvComm::find(const Frame& frame) {
  if (frame.sequence < first_) return nullptr;
  if (frame.sequence >= first_ + messages_.size()) break_off(frame, "which was not posted");
  Message& message = messages_[frame.sequence - first_];
  if (!message.segments) {
    const std::size_t room = message.request->memory.size();
    if (frame.group > room) break_off(frame, concat("which is larger than its room of ", room));
    message.segments.emplace(frame.group, segment_bytes_);
  }
  if (frame.group != message.segments->message_bytes() ||
      !message.segments->has(frame.offset, frame.length)) {
    break_off(frame, concat("with ", frame.length, " bytes at ", frame.offset,
                            ", which is no segment of it"));
  }
  return message.segments->complete() ? nullptr : &message;
}

std::byte* RecvComm::place(std::uint32_t /*peer*/, const Frame& frame) {
  if (frame.kind != FrameKind::kSegment) return nullptr;
  const Message* const message = find(frame);
  if (message == nullptr || message->segments->is_delivered(frame.offset / segment_bytes_)) {
    return nullptr;
  }
  return message->request->memory.data() + frame.offset;
}

void RecvComm::take_frame(std::uint32_t stream, const Frame& frame,
                          std::span<const std::byte> payload) {
  if (frame.kind != FrameKind::kSegment) break_off(frame, "which a sender does not send");
  ++streams_[stream].received;
  Message* const message = find(frame);
  if (message == nullptr || payload.size() != frame.length) return;
  message->segments->deliver(frame.offset / segment_bytes_);
  if (message->segments->complete()) finish(*message);
}

void RecvComm::finish(Message& message) {
  // Another stream may be receiving one of the segments for the second time.
  link().forget(message.request->memory);
  finished_.push_back({message.request, message.segments->message_bytes()});
  while (!messages_.empty() && messages_.front().segments &&
         messages_.front().segments->complete()) {
    messages_.pop_front();
    ++first_;
  }
}

void RecvComm::lose(std::uint32_t /*stream*/) {
  // What was written to a stream that died may not have arrived.
  for (Counts& each : streams_) each.reported = 0;
  next_post_ = first_;
  control_ = 0;
  while (!link().alive(control_)) ++control_;
}

void RecvComm::advance(TimePoint /*now*/) {
  post();
  acknowledge();
}

void RecvComm::post() {
  next_post_ = std::max(next_post_, first_);
  for (; next_post_ < first_ + messages_.size(); ++next_post_) {
    Frame frame;
    frame.kind = FrameKind::kPost;
    frame.sequence = next_post_;
    frame.step = segment_bytes_;
    frame.offset = messages_[next_post_ - first_].request->memory.size();
    if (!send_control(frame)) return;
  }
}

void RecvComm::acknowledge() {
  for (std::uint32_t stream = 0; stream < streams_.size(); ++stream) {
    Counts& counts = streams_[stream];
    if (counts.received == counts.reported) continue;
    Frame frame;
    frame.kind = FrameKind::kAck;
    frame.stream = static_cast<std::uint16_t>(stream);
    frame.offset = counts.received;
    if (!send_control(frame)) return;
    counts.reported = counts.received;
  }
  if (!link().ready(control_)) return;  // a frame is half written
  for (const auto& [request, bytes] : finished_) request->complete(bytes);
  finished_.clear();
}

bool RecvComm::send_control(Frame frame) {
  return link().ready(control_) && link().send(control_, frame, {});
}

}  // namespace slipstream::nccl
