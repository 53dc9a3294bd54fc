#include "engine/operations.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/held_operations.h"

namespace slipstream {
namespace {

constexpr std::size_t kMostRecords = 1'000'000;

std::int64_t nanoseconds(TimePoint at) {
  return std::chrono::duration_cast<Nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace

void Operations::note_started() {
  if (running_++ == 0) busy_since_ = world_.now;
}

void Operations::admit(const std::shared_ptr<Operation>& operation) {
  note_bulk(*operation);
  operation->group().running[operation->sequence()] = operation;
}

void Operations::begin(const std::shared_ptr<Operation>& operation) {
  post_credits(*operation);
  operation->begin(
      [&](std::uint32_t step, std::uint32_t segment) { issue(operation, step, segment); });
  if (operation->segments_left() == 0) complete(operation);
}

/// Records large transfers over the network, because their callers need not spin.
void Operations::note_bulk(Operation& operation) {
  const Group& group = operation.group();
  operation.is_bulk = std::ranges::any_of(operation.plan().steps, [&](const Step& step) {
    const std::uint64_t bytes = step.kind == Step::Kind::kSend ? step.from.bytes : step.to.bytes;
    return step.kind != Step::Kind::kLocal && bytes > world_.options.eager_bytes &&
           !world_.peer_of(group, step.peer).is_local();
  });
  if (operation.is_bulk) running_bulk_.fetch_add(1, std::memory_order_relaxed);
}

/// A rank that is gone may have sent all data that the operation needs from it.
std::optional<Error> Operations::why_forsaken(const Operation& operation) const {
  const Group& group = operation.group();
  for (std::uint32_t index = 0; index < group.size(); ++index) {
    const std::uint32_t rank = group.ranks()[index];
    if (rank == world_.identity.rank || !world_.peers[rank]->gone() || !operation.needs(index))
      continue;
    return Error(ErrorKind::kPeer,
                 concat(world_.name_of(rank), " ", world_.peers[rank]->why_gone()));
  }
  return std::nullopt;
}

/// Tells all ranks that will send segments that they may send them.
void Operations::post_credits(Operation& operation) {
  Group& group = operation.group();
  std::map<std::uint32_t, std::uint64_t> expected;  // rank in the group -> bytes
  for (const Step& step : operation.plan().steps) {
    if (step.kind == Step::Kind::kReceive && step.to.bytes > world_.options.eager_bytes) {
      expected[step.peer] += step.to.bytes;
    }
  }
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    const bool asked = group.requested.erase({rank, operation.sequence()}) > 0;
    const auto bytes = expected.find(rank);
    if (!asked && bytes == expected.end()) continue;
    Frame frame = world_.frame_for(FrameKind::kPost, group, operation.sequence());
    frame.fingerprint = group.fingerprint(operation.request(), rank);
    frame.offset = bytes == expected.end() ? 0 : bytes->second;
    world_.peer_of(group, rank).send_control(frame, {});
  }
}

void Operations::issue(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                       std::uint32_t segment) {
  if (operation->plan().steps[step].kind == Step::Kind::kSend) {
    issue_send(operation, step, segment);
  } else {
    operation->run_local(step, segment);
    finish_segment(operation, step, segment);
  }
}

void Operations::issue_send(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                            std::uint32_t segment) {
  const Step& send = operation->plan().steps[step];
  Group& group = operation->group();
  if (send.from.bytes <= world_.options.eager_bytes) {
    if (send_eagerly(operation, step)) finish_segment(operation, step, segment);
    return;
  }
  Segment piece{operation, step, segment};
  if (group.posted[send.peer] > operation->sequence()) {
    world_.peer_of(group, send.peer).send_segment(std::move(piece));
  } else {
    group.uncredited[{send.peer, operation->sequence()}].push_back(std::move(piece));
  }
}

bool Operations::send_eagerly(const std::shared_ptr<Operation>& operation, std::uint32_t step) {
  const Step& send = operation->plan().steps[step];
  Group& group = operation->group();
  Peer& peer = world_.peer_of(group, send.peer);
  const std::span<const std::byte> payload = operation->outgoing(step, 0);
  Frame frame = world_.frame_for(FrameKind::kEager, group, operation->sequence());
  frame.step = send.tag;
  frame.fingerprint = group.fingerprint(operation->request(), send.peer);
  const std::uint64_t bytes = sizeof(Frame) + payload.size();
  if (group.posted[send.peer] > operation->sequence()) {
    frame.flags = kAskedFor;
  } else if (peer.eager_sent - peer.eager_credited + bytes <= world_.options.eager_pool_bytes) {
    peer.eager_sent += bytes;
  } else {
    auto& waiting = group.unpooled[{send.peer, operation->sequence()}];
    waiting.push_back({operation, step, 0});
    if (waiting.size() > 1) return false;
    frame.kind = FrameKind::kRequest;
    peer.send_control(frame, {});
    return false;
  }
  peer.send_control(frame, payload);
  return true;
}

Frame Operations::frame_of(const Segment& segment) {
  const Operation& operation = *segment.operation;
  const Step& step = operation.plan().steps[segment.step];
  Frame frame = world_.frame_for(FrameKind::kSegment, operation.group(), operation.sequence());
  frame.flags = operation.is_point_to_point() ? kPointToPoint : std::uint8_t{0};
  frame.step = step.tag;
  frame.offset = segment.index * operation.segment_bytes();
  frame.length = static_cast<std::uint32_t>(payload_of(segment).size());
  SLIPSTREAM_ASSERT(frame.length <= world_.options.segment_bytes, operation.title(), ": ",
                    frame.length);
  return frame;
}

std::span<const std::byte> Operations::payload_of(const Segment& segment) {
  return segment.operation->outgoing(segment.step, segment.index);
}

bool Operations::is_cancelled(const Segment& segment) const {
  return segment.operation->cancelled();
}

void Operations::segment_done(const Segment& segment) {
  finish_segment(segment.operation, segment.step, segment.index);
}

void Operations::finish_segment(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                                std::uint32_t segment) {
  operation->progressed = world_.now;
  const bool last = operation->finish_segment(
      step, segment,
      [&](std::uint32_t next, std::uint32_t piece) { issue(operation, next, piece); });
  if (last) complete(operation);
}

void Operations::complete(const std::shared_ptr<Operation>& operation) {
  if (operation->completion()->done()) return;
  Group& group = operation->group();
  // The ranks differed before it began; it fails with the others once all have reported.
  const bool out_of_step = group.mismatch && group.mismatch->sequence <= operation->sequence();
  if (out_of_step && !operation->is_point_to_point()) return;
  if (operation->is_point_to_point()) {
    if (operation->request().collective == Collective::kSend) {
      group.sending.erase({operation->request().root, operation->sequence()});
    } else {
      group.receiving.erase({operation->completion()->source(), operation->sequence()});
    }
  } else {
    group.running.erase(operation->sequence());
  }
  retire(*operation, nullptr);
  release_slot(*operation, false);
  operation->completion()->finish(std::nullopt);
}

/// After this, no transport reads or writes the operation's memory.
void Operations::forget_memory(const Operation& operation) {
  for (const std::uint32_t rank : operation.group().ranks()) {
    // Also for a peer that is gone: a silent one may wake up while its connections are still open.
    if (rank == world_.identity.rank || world_.peers[rank]->link() == nullptr) continue;
    for (const Step& step : operation.plan().steps) {
      if (step.kind == Step::Kind::kLocal) continue;
      const bool encodes = step.work == Step::Work::kEncode;
      const Region& sent = encodes ? step.encoded : step.from;
      const Region& region = step.kind == Step::Kind::kSend ? sent : step.to;
      if (region.bytes > 0) world_.peers[rank]->link()->forget(operation.whole(region));
    }
  }
}

void Operations::fail(const std::shared_ptr<Operation>& operation, const Error& cause) {
  if (operation->completion()->done()) return;
  const std::shared_ptr<Operation> keep = operation;
  operation->cancel();
  forget_memory(*operation);
  Group& group = operation->group();
  if (operation->is_point_to_point()) {
    const auto is_this = [&](const auto& entry) { return entry.second == operation; };
    std::erase_if(group.sending, is_this);
    std::erase_if(group.receiving, is_this);
    group.receives.remove(operation);
  } else {
    group.running.erase(operation->sequence());
  }
  retire(*operation, &cause);
  release_slot(*operation, true);
  operation->completion()->finish(
      Error(cause.kind(), concat(operation->title(), ": ", cause.what())));
}

void Operations::write_record(const Operation& operation, OperationRecord& record) {
  const Request& request = operation.request();
  const bool has_started = operation.started != TimePoint{};
  record.collective = request.collective;
  record.dtype = request.dtype;
  record.state = has_started ? OperationState::kRunning : OperationState::kWaiting;
  record.name = request.name;
  record.group = operation.group().name();
  record.sequence = operation.sequence();
  record.bytes = request.count * size_of(request.dtype);
  record.submitted = nanoseconds(operation.submitted);
  record.started = has_started ? nanoseconds(operation.started) : 0;
  record.completed = 0;
  record.error.clear();
  record.absent.clear();
  record.missing.clear();
}

void Operations::write_waits(const Operation& operation, OperationRecord& record) {
  const Group& group = operation.group();
  for (std::uint32_t member = 0; member < group.size(); ++member) {
    if (member == group.rank()) continue;
    const std::uint32_t rank = group.ranks()[member];
    const bool is_absent = group.submitted[member] <= operation.sequence();
    if (is_absent && !operation.is_point_to_point()) record.absent.push_back(rank);
    if (operation.needs(member)) record.missing.push_back(rank);
  }
}

void Operations::retire(const Operation& operation, const Error* cause) {
  const TimePoint now = Clock::now();
  if (operation.is_bulk) running_bulk_.fetch_sub(1, std::memory_order_relaxed);
  in_flight_.fetch_sub(1);
  ++(cause != nullptr ? world_.stats.failed_operations : world_.stats.operations);
  if (--running_ == 0) {
    world_.stats.busy_nanoseconds += static_cast<std::uint64_t>((now - busy_since_).count());
  }
  world_.stats.last_complete_nanoseconds = nanoseconds(now);
  OperationRecord& record = world_.flight.next_operation();
  write_record(operation, record);
  record.state = cause != nullptr ? OperationState::kFailed : OperationState::kDone;
  record.completed = nanoseconds(now);
  if (cause != nullptr) {
    record.error = cause->what();
    write_waits(operation, record);
  }
  if (!keeps_records_.load(std::memory_order_relaxed)) return;
  const std::scoped_lock lock(records_mutex_);
  if (records_.size() < kMostRecords) records_.push_back(record);
}

Stats Operations::stats() const {
  Stats stats = world_.stats;
  if (running_ > 0) {
    stats.busy_nanoseconds += static_cast<std::uint64_t>((Clock::now() - busy_since_).count());
  }
  return stats;
}

std::vector<OperationRecord> Operations::take_records() {
  const std::scoped_lock lock(records_mutex_);
  return std::exchange(records_, {});
}

}  // namespace slipstream
