#include "engine/receiver.h"

#include <algorithm>
#include <utility>

namespace slipstream {
namespace {

// Frames that are kept for one group that does not exist here yet.
constexpr std::size_t kMostUnknown = 65536;

bool is_eager(const Frame& frame) {
  return frame.kind == FrameKind::kEager && (frame.flags & kAskedFor) == 0;
}

}  // namespace

void Receiver::deliver_early(Group& group) {
  const auto waiting = unknown_groups_.extract(group.id());
  if (waiting.empty()) return;
  for (const Early& early : waiting.mapped()) {
    if (group.index_of(early.peer) == kNotAMember) continue;
    dispatch(*world_.peers[early.peer], group, early.frame, early.payload);
  }
}

void Receiver::deliver_early(const std::shared_ptr<Operation>& operation) {
  const auto waiting = operation->group().early.extract(operation->sequence());
  if (waiting.empty()) return;
  for (const Early& early : waiting.mapped()) {
    take_eager(*world_.peers[early.peer], operation, early.frame, early.payload);
  }
}

void Receiver::connected(std::uint32_t peer, Link& link) {
  world_.peers[peer]->connect(link, world_.now);
  if (!link.copies_payload()) world_.peers[peer]->use_streams(streams_.count());
}

void Receiver::refused(std::uint32_t peer, const std::string& reason) {
  refusals_.push_back(concat(world_.rank_on_host(peer), ": ", reason));
}

Receiver::Target Receiver::target_of(std::uint32_t peer, Group& group, const Frame& frame) const {
  const std::uint32_t from = group.index_of(peer);
  Target target;
  if ((frame.flags & kPointToPoint) != 0) {
    const auto found = group.receiving.find({from, frame.sequence});
    if (found == group.receiving.end()) return {};
    target.operation = found->second;
  } else {
    target.operation = group.find(frame.sequence);
    if (!target.operation) return {};
    const auto& receives = target.operation->plan().receives;
    const auto step = receives.find(Plan::key(from, frame.step));
    if (step == receives.end()) return {};
    target.step = step->second;
  }
  const std::uint64_t segment = frame.offset / target.operation->segment_bytes();
  if (segment >= target.operation->num_segments(target.step) ||
      target.operation->is_finished(target.step, static_cast<std::uint32_t>(segment))) {
    return {};
  }
  target.segment = static_cast<std::uint32_t>(segment);
  if (target.operation->incoming_bytes(target.step, target.segment) != frame.length) return {};
  return target;
}

std::byte* Receiver::place(std::uint32_t peer, const Frame& frame) {
  if (frame.kind != FrameKind::kSegment) return nullptr;
  Group* group = world_.group_with(frame.group);
  if (group == nullptr) return nullptr;
  const Target target = target_of(peer, *group, frame);
  if (!target.operation) return nullptr;
  const Step& step = target.operation->plan().steps[target.step];
  if (step.work != Step::Work::kCopy) return nullptr;  // such a step needs the whole segment
  const auto memory = target.operation->segment_of(step.to, target.segment);
  // A repeated frame: a first copy that is half received on a dying stream must not overwrite it
  // later.
  if (target.operation->place(target.step, target.segment))
    world_.peers[peer]->link()->forget(memory);
  return memory.data();
}

void Receiver::arrived(std::uint32_t rank, std::uint32_t stream, const Frame& frame,
                       std::span<const std::byte> payload) {
  Peer& peer = *world_.peers[rank];
  if (frame.epoch != world_.identity.epoch || peer.gone()) return;
  if (!peer.accept(frame, stream, world_.now)) return;
  switch (frame.kind) {
    case FrameKind::kAck:
      if (peer.acknowledge_segments(frame, world_.now)) return;
      return failures_.break_off(peer, frame,
                                 concat("for ", frame.offset, " segments of stream ", frame.stream,
                                        ", which were not sent"));
    case FrameKind::kCredit:
      peer.eager_credited = frame.offset;
      return;
    case FrameKind::kHeartbeat:
      return;
    case FrameKind::kGoodbye:
      return on_goodbye(peer);
    case FrameKind::kStreams:
      return streams_.on_plan(peer, frame);
    case FrameKind::kStreamsReport:
      return streams_.on_report(peer, frame);
    default:
      break;
  }
  if (is_eager(frame)) {
    peer.eager_arrived += sizeof(Frame) + payload.size();
    if (peer.eager_arrived - peer.eager_consumed > world_.options.eager_pool_bytes) {
      return failures_.break_off(
          peer, frame,
          concat("for which its pool of ", world_.options.eager_pool_bytes, " bytes has no room"));
    }
  }
  Group* group = world_.group_with(frame.group);
  if (group == nullptr) return on_unknown_group(peer, frame, payload);
  if (group->index_of(rank) != kNotAMember) dispatch(peer, *group, frame, payload);
}

void Receiver::dispatch(Peer& peer, Group& group, const Frame& frame,
                        std::span<const std::byte> payload) {
  const bool point_to_point = (frame.flags & kPointToPoint) != 0;
  note_submitted(peer, group, frame);
  switch (frame.kind) {
    case FrameKind::kSegment:
      return on_segment(peer, group, frame, payload);
    case FrameKind::kEager:
      return point_to_point ? messages_.on_message(peer, group, frame, payload)
                            : on_eager(peer, group, frame, payload);
    case FrameKind::kRequest:
      return point_to_point ? messages_.on_message(peer, group, frame, payload)
                            : on_request(peer, group, frame);
    case FrameKind::kPost:
      return on_post(peer, group, frame);
    case FrameKind::kProbe:
      return on_probe(peer, group, frame);
    case FrameKind::kDescribe:
      return failures_.on_describe(peer, group, frame, payload);
    case FrameKind::kAbort:
      return failures_.on_abort(peer, group, frame, payload);
    default:
      return;
  }
}

/// The group was closed here, or does not exist here yet.
void Receiver::on_unknown_group(Peer& peer, const Frame& frame,
                                std::span<const std::byte> payload) {
  const auto closed = world_.closed_groups.find(frame.group);
  if (closed == world_.closed_groups.end()) {
    if (frame.kind == FrameKind::kProbe) return;  // it will be repeated
    if (keep_for_later(peer, frame, payload)) return;
  } else if (is_eager(frame)) {
    world_.release_eager(peer, sizeof(Frame) + payload.size());
  }
  const std::uint64_t started = closed == world_.closed_groups.end() ? 0 : closed->second;
  const bool point_to_point = (frame.flags & kPointToPoint) != 0;
  const bool needs_us = point_to_point
                            ? frame.kind == FrameKind::kRequest
                            : frame.kind != FrameKind::kAbort &&
                                  frame.kind != FrameKind::kDescribe && frame.sequence >= started;
  if (!needs_us) return;
  const std::string why = concat(world_.name_of(world_.identity.rank),
                                 " has closed the group, or did not create it in time");
  failures_.send_abort(peer, frame.group, Error(ErrorKind::kAborted, why), started);
}

/// Keeps a frame for a group that does not exist here yet. Returns false if there are too many;
/// then the group counts as closed, and all its frames are dropped.
bool Receiver::keep_for_later(Peer& peer, const Frame& frame, std::span<const std::byte> payload) {
  auto& waiting = unknown_groups_[frame.group];
  waiting.push_back({peer.rank(), frame, {payload.begin(), payload.end()}});
  if (waiting.size() < kMostUnknown) return true;
  for (const Early& early : waiting) {
    if (is_eager(early.frame)) {
      world_.release_eager(*world_.peers[early.peer], sizeof(Frame) + early.payload.size());
    }
  }
  unknown_groups_.erase(frame.group);
  world_.closed_groups.emplace(frame.group, 0);
  return false;
}

/// A frame of a collective shows that its sender has submitted it.
void Receiver::note_submitted(Peer& peer, Group& group, const Frame& frame) {
  const bool collective = (frame.flags & kPointToPoint) == 0 && frame.kind != FrameKind::kAbort &&
                          frame.kind != FrameKind::kDescribe;
  if (!collective) return;
  auto& submitted = group.submitted[group.index_of(peer.rank())];
  submitted = std::max(submitted, frame.sequence + 1);
  if (group.watcher != nullptr && submitted > group.started) group.watcher->ahead(submitted);
}

void Receiver::on_segment(Peer& peer, Group& group, const Frame& frame,
                          std::span<const std::byte> payload) {
  if (payload.size() != frame.length) return;  // discarded after forget(), but counted all the same
  const Target target = target_of(peer.rank(), group, frame);
  if (!target.operation) return;  // repeated, or of an operation that has failed
  target.operation->take(target.step, target.segment, payload);
  operations_.finish_segment(target.operation, target.step, target.segment);
}

void Receiver::on_eager(Peer& peer, Group& group, const Frame& frame,
                        std::span<const std::byte> payload) {
  if (const auto operation = group.find(frame.sequence)) {
    return take_eager(peer, operation, frame, payload);
  }
  if (frame.sequence >= group.started && frame.sequence < group.failed_from) {
    group.early[frame.sequence].push_back({peer.rank(), frame, {payload.begin(), payload.end()}});
    return;
  }
  if (is_eager(frame)) world_.release_eager(peer, sizeof(Frame) + payload.size());
  if (!group.agrees(group.index_of(peer.rank()), frame))
    failures_.begin_mismatch(group, frame.sequence);
}

void Receiver::take_eager(Peer& peer, const std::shared_ptr<Operation>& operation,
                          const Frame& frame, std::span<const std::byte> payload) {
  if (is_eager(frame)) world_.release_eager(peer, sizeof(Frame) + payload.size());
  if (operation->cancelled()) return;
  Group& group = operation->group();
  const Target target = target_of(peer.rank(), group, frame);
  if (!group.agrees(group.index_of(peer.rank()), frame) || !target.operation) {
    return failures_.begin_mismatch(group, frame.sequence);
  }
  operation->take(target.step, target.segment, payload);
  operations_.finish_segment(operation, target.step, target.segment);
}

void Receiver::on_post(Peer& peer, Group& group, const Frame& frame) {
  const std::uint32_t from = group.index_of(peer.rank());
  if ((frame.flags & kPointToPoint) != 0) return messages_.on_post(peer, group, frame);
  group.posted[from] = std::max(group.posted[from], frame.sequence + 1);
  if (!group.agrees(from, frame)) return failures_.begin_mismatch(group, frame.sequence);
  for (auto it = group.uncredited.lower_bound({from, 0});
       it != group.uncredited.end() && it->first.first == from &&
       it->first.second < group.posted[from];
       it = group.uncredited.erase(it)) {
    for (Segment& segment : it->second) peer.send_segment(std::move(segment));
  }
  std::vector<Segment> released;
  for (auto it = group.unpooled.lower_bound({from, 0});
       it != group.unpooled.end() && it->first.first == from &&
       it->first.second < group.posted[from];
       it = group.unpooled.erase(it)) {
    for (const Segment& waiting : it->second) {
      if (!waiting.operation->cancelled()) released.push_back(waiting);
    }
  }
  for (const Segment& waiting : released) {
    if (operations_.send_eagerly(waiting.operation, waiting.step))
      operations_.segment_done(waiting);
  }
}

void Receiver::on_request(Peer& peer, Group& group, const Frame& frame) {
  if (!group.agrees(group.index_of(peer.rank()), frame)) {
    return failures_.begin_mismatch(group, frame.sequence);
  }
  if (!group.find(frame.sequence)) {
    if (frame.sequence >= group.started) {
      group.requested[{group.index_of(peer.rank()), frame.sequence}] = true;
    }
    return;
  }
  Frame post = world_.frame_for(FrameKind::kPost, group, frame.sequence);
  post.fingerprint = frame.fingerprint;
  peer.send_control(post, {});
}

/// Handles the probe of a rank that waits for an operation. dispatch() has recorded that it waits;
/// here its operation is compared with ours, for plans in which the two ranks never exchange data.
void Receiver::on_probe(Peer& peer, Group& group, const Frame& frame) {
  if ((frame.flags & kAfterStall) != 0) failures_.on_stalled_probe(peer, group, frame);
  if ((frame.flags & kPointToPoint) != 0) return;
  if (!group.agrees(group.index_of(peer.rank()), frame))
    failures_.begin_mismatch(group, frame.sequence);
}

/// Its segments may still be in flight on other streams; operations that need them fail once it is
/// gone.
void Receiver::on_goodbye(Peer& peer) {
  peer.leave("has left the job");
  peer.send_acknowledgements(true);
}

}  // namespace slipstream
