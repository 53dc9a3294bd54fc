#include "engine/engine.h"

#include <algorithm>
#include <utility>

namespace slipstream {
namespace {

constexpr std::size_t kMostRecords = 1'000'000;
constexpr std::uint64_t kFnvPrime = 0x100000001b3U;

std::int64_t nanoseconds(TimePoint at) {
  return std::chrono::duration_cast<Nanoseconds>(at.time_since_epoch()).count();
}

/// FNV-1a: the same on every rank, whatever its standard library.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return hash;
}

/// The float32 bytes of one segment: as many as it can carry encoded, or also as they are.
std::uint64_t decoded_segment(const Plan& plan, std::uint64_t segment_bytes) {
  const Codec codec = plan.codec;
  if (codec == Codec::kNone) return segment_bytes;
  const std::size_t block = codec_block(codec);
  const std::uint64_t most = plan.sends_plain ? block * sizeof(float) : encoded_bytes(codec, block);
  const std::uint64_t blocks = segment_bytes / most;
  if (blocks == 0) {
    fail(ErrorKind::kConfig, "SLIPSTREAM_SEGMENT_BYTES is ", segment_bytes, "; codec ",
         name_of(codec), " needs at least ", most);
  }
  return blocks * block * sizeof(float);
}

void check_made_in(const Origin& origin) {
  if (!origin.is_here()) {
    fail(ErrorKind::kUsage,
         "the engine was used in a forked child process; it belongs to the parent. Start workers "
         "that communicate with the 'spawn' method, or initialise Slipstream after forking");
  }
}

}  // namespace

Engine::Engine(const Identity& identity, EngineOptions options, Doorbell& doorbell, Log log)
    : identity_(identity),
      options_(std::move(options)),
      log_(std::move(log)),
      driver_(*this, doorbell, options_.driver),
      hosts_(identity.world_size),
      places_(identity.world_size),
      stream_tuner_(options_.most_streams, options_.fixed_streams, options_.first_streams),
      stream_lead_(identity_.rank) {
  for (std::uint32_t rank = 0; rank < identity.world_size; ++rank) {
    peers_.push_back(rank == identity.rank
                         ? nullptr
                         : std::make_unique<Peer>(rank, identity.epoch,
                                                  static_cast<SegmentSource&>(*this), stats_));
  }
}

Engine::~Engine() {
  if (origin_.is_here()) close();
}

void Engine::add_transport(Transport& transport) {
  transports_.push_back(&transport);
  watch_transports([](const Transport&) { return true; });
}

/// Those that connect nobody are polled by tick() only: strangers that knock there can wait.
void Engine::watch_transports(const std::function<bool(const Transport&)>& is_busy) {
  busy_transports_.clear();
  wait_fds_.clear();
  for (Transport* const transport : transports_) {
    if (!is_busy(*transport)) continue;
    busy_transports_.push_back(transport);
    if (transport->wait_fd() >= 0) wait_fds_.push_back(transport->wait_fd());
  }
}

void Engine::place_rank(std::uint32_t rank, std::string host_name, Place place) {
  hosts_[rank] = std::move(host_name);
  places_[rank] = std::move(place);
}

/// Given dimensions are the world's; a group of other ranks has those of its places.
Layout Engine::layout_of(const std::vector<std::uint32_t>& ranks, std::uint32_t index) const {
  std::vector<Place> places;
  for (const std::uint32_t rank : ranks) places.push_back(places_[rank]);
  const bool is_world = ranks.size() == identity_.world_size;
  return make_layout(places, index,
                     is_world ? options_.dimensions : std::span<const std::uint32_t>());
}

std::vector<std::uint32_t> Engine::local_ranks() const {
  std::vector<std::uint32_t> local;
  for (std::uint32_t rank = 0; rank < identity_.world_size; ++rank) {
    if (rank == identity_.rank || peers_[rank]->is_local()) local.push_back(rank);
  }
  return local;
}

std::shared_ptr<Group> Engine::make_group(const std::string& name,
                                          std::vector<std::uint32_t> ranks) {
  check_made_in(origin_);
  std::uint32_t index = kNotAMember;
  std::uint64_t id = hash_of(name);
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= identity_.world_size) {
      fail(ErrorKind::kUsage, "group '", name, "': rank ", ranks[i],
           " does not exist; allowed are 0 to ", identity_.world_size - 1);
    }
    if (std::find(ranks.begin(), ranks.begin() + i, ranks[i]) != ranks.begin() + i) {
      fail(ErrorKind::kUsage, "group '", name, "': rank ", ranks[i], " is named twice");
    }
    if (ranks[i] == identity_.rank) index = i;
    id = id * kFnvPrime + ranks[i] + 1;
  }
  if (index == kNotAMember) {
    fail(ErrorKind::kUsage, "group '", name, "' does not contain this rank, ", identity_.rank,
         "; only its members make it");
  }
  std::shared_ptr<Group> group;
  driver_.run_exclusively([&] {
    {
      const std::scoped_lock lock(submit_mutex_);
      if (!accepting_) fail(ErrorKind::kUsage, "the engine is closed; make a new one");
      id = id * kFnvPrime + ++group_instances_[concat(name, '/', id)];
    }
    Layout layout = layout_of(ranks, index);
    group = std::make_shared<Group>(name, id, std::move(ranks), index, identity_.world_size,
                                    std::move(layout));
    groups_[id] = group;
    if (closed_groups_.erase(id) > 0) {
      return fail_group(*group, Error(ErrorKind::kAborted, "it was made here too late"), false);
    }
    auto waiting = unknown_groups_.extract(id);
    if (waiting.empty()) return;
    for (const Early& early : waiting.mapped()) {
      if (group->index_of(early.peer) == kNotAMember) continue;
      dispatch(*peers_[early.peer], *group, early.frame, early.payload);
    }
  });
  return group;
}

void Engine::close_group(Group& group) {
  check_made_in(origin_);
  driver_.run_exclusively([&] {
    if (group.closed) return;
    start_submitted();
    const bool busy = !group.running.empty() || !group.sending.empty() || !group.receives.empty() ||
                      !group.receiving.empty();
    // A member that is ahead waits for an operation that will never be submitted here, or one that
    // has a large message for a receive that will never be.
    const bool awaited =
        std::ranges::any_of(group.submitted,
                            [&](std::uint64_t submitted) { return submitted > group.started; }) ||
        std::ranges::any_of(group.messages, [](const Early& message) {
          return message.frame.kind == FrameKind::kRequest;
        });
    const Error cause(ErrorKind::kAborted,
                      concat("rank ", identity_.rank, " closed group '", group.name(), "'"));
    // What this rank has finished may still be under way at the others, and ends well there.
    std::uint64_t first = group.started;
    for (const auto& [sequence, operation] : group.running) first = std::min(first, sequence);
    if (busy || awaited) fail_group(group, cause, true, first);
    drop_undelivered(group, 0);
    group.closed = true;
    closed_groups_[group.id()] = group.started;
    groups_.erase(group.id());
  });
}

void Engine::abort_group(Group& group, const std::string& reason) {
  check_made_in(origin_);
  driver_.run_exclusively([&] {
    start_submitted();
    fail_group(group,
               Error(ErrorKind::kAborted, concat("rank ", identity_.rank, " aborted group '",
                                                 group.name(), "': ", reason)),
               true);
  });
}

void Engine::tune_group(Group& group, const AllreduceTuning& tuning) {
  check_made_in(origin_);
  const std::uint64_t segment = tuning.segment_bytes, most = options_.segment_bytes;
  const std::uint64_t least = std::max<std::uint64_t>(options_.eager_bytes, kMinSegmentBytes);
  if (segment != 0 && (segment < least || segment > most || segment % kSegmentGrain != 0)) {
    fail(ErrorKind::kUsage, "group '", group.name(), "' cannot have segments of ", segment,
         " bytes; allowed: multiples of ", kSegmentGrain, " from ", least, " to ", most);
  }
  const std::scoped_lock lock(submit_mutex_);
  group.tune(tuning);
}

Group* Engine::group_with(std::uint64_t id) const {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.get();
}

std::shared_ptr<Completion> Engine::submit(const std::shared_ptr<Group>& group, Request request) {
  check_made_in(origin_);
  const Shape shape = shape_of(request, *group);
  const bool waits_soon = request.waits_soon;
  const TimePoint now = Clock::now();
  std::shared_ptr<Completion> completion;
  {
    const std::scoped_lock lock(submit_mutex_);
    if (!accepting_) fail(ErrorKind::kUsage, "the engine is closed; make a new one");
    if (options_.algorithm == Algorithm::kAuto) group->complete(request);
    const Algorithm forced =
        request.algorithm == Algorithm::kAuto ? options_.algorithm : request.algorithm;
    const Nanoseconds timeout =
        request.timeout.count() > 0 ? request.timeout : options_.operation_timeout;
    auto plan = group->plan_for(shape, forced);
    const std::uint64_t segment_bytes = decoded_segment(
        *plan, request.segment_bytes == 0 ? options_.segment_bytes : request.segment_bytes);
    auto operation =
        std::make_shared<Operation>(std::move(request), std::move(plan), group, segment_bytes);
    operation->set_order(next_order_++);
    if (!operation->is_point_to_point()) operation->set_sequence(group->next_sequence++);
    operation->submitted = now;
    operation->deadline = now + timeout;
    completion = operation->completion();
    submitted_.push_back(std::move(operation));
    in_flight_.fetch_add(1);
  }
  last_submit_.store(nanoseconds(now), std::memory_order_relaxed);
  driver_.kick(waits_soon);
  // The caller has nothing to wait for: somebody else must look after what was in flight before.
  if (waits_soon && completion->done() && has_work()) driver_.kick(false);
  return completion;
}

bool Engine::wait(Completion& completion, TimePoint until) {
  if (completion.done()) return true;
  check_made_in(origin_);
  const TimePoint begin = Clock::now();
  const bool done = driver_.wait(completion, until);
  blocked_.fetch_add(static_cast<std::uint64_t>((Clock::now() - begin).count()),
                     std::memory_order_relaxed);
  return done;
}

bool Engine::poll() {
  try {
    return poll_once();
  } catch (const std::exception& error) {
    log_(LogLevel::kError, "the engine has failed: ", error.what());
    const auto groups = groups_;
    const Error cause(ErrorKind::kInternal, error.what());
    for (const auto& [id, group] : groups) fail_group(*group, cause, true);
    return false;
  }
}

bool Engine::poll_once() {
  now_ = Clock::now();
  bool any = woken_.load(std::memory_order_relaxed) && woken_.exchange(false);
  start_submitted();
  for (Transport* transport : busy_transports_) any = transport->poll(*this) || any;
  any = pump_peers() || any;
  if (now_ >= next_tick_) tick();
  last_poll_ = now_;
  return any;
}

bool Engine::pump_peers() {
  const bool waited = std::exchange(network_waits_, false);
  bool any = false, unsent = false;
  for (const auto& peer : peers_) {
    if (!peer || !peer->reachable()) continue;
    const std::uint64_t delivered = peer->take_delivered();
    if (waited && !peer->is_local() && peer->waits()) {
      stream_tuner_.note(peer->rank(), now_ - last_poll_, delivered);
    }
    if (peer->has_unsent()) any = peer->pump(now_) || any;
    unsent = unsent || peer->has_unsent();
    network_waits_ = network_waits_ || (!peer->is_local() && peer->waits());
    peer->send_acknowledgements(false);
  }
  unsent_.store(unsent, std::memory_order_relaxed);
  tune_streams(waited);
  return any;
}

TimePoint Engine::next_event() const {
  TimePoint next = next_tick_;
  for (const Transport* transport : busy_transports_)
    next = std::min(next, transport->next_event());
  return next;
}

void Engine::start_submitted() {
  std::vector<std::shared_ptr<Operation>> submitted;
  {
    const std::scoped_lock lock(submit_mutex_);
    submitted.swap(submitted_);
  }
  for (const auto& operation : submitted) {
    if (running_++ == 0) busy_since_ = now_;
    start(operation);
  }
}

void Engine::start(const std::shared_ptr<Operation>& operation) {
  Group& group = operation->group();
  operation->started = operation->progressed = now_;
  operation->report_at = operation->submitted + options_.stall_after;
  if (!operation->is_point_to_point()) {
    group.started = operation->sequence() + 1;
    group.remember(*operation);
  }
  const bool failed = operation->is_point_to_point() ? group.failure.has_value()
                                                     : operation->sequence() >= group.failed_from;
  if (failed || group.closed) {
    const Error closed(ErrorKind::kAborted, "the group is closed");
    return fail_operation(operation, group.failure.value_or(closed));
  }
  if (operation->request().collective == Collective::kSend) return start_send(operation);
  if (operation->request().collective == Collective::kReceive) return start_receive(operation);

  note_bulk(*operation);
  const std::uint64_t sequence = operation->sequence();
  group.running[sequence] = operation;
  if (group.mismatch && group.mismatch->sequence == sequence) {
    return tell_mismatch(group, describe(operation->request()));
  }
  post_credits(*operation);
  operation->begin(
      [&](std::uint32_t step, std::uint32_t segment) { issue(operation, step, segment); });
  if (operation->segments_left() == 0) complete(operation);
  auto early = group.early.extract(sequence);
  if (!early.empty()) {
    for (const Early& each : early.mapped()) {
      take_eager(*peers_[each.peer], operation, each.frame, each.payload);
    }
  }
  fail_if_forsaken(operation);
}

/// Large transfers over the network: who waits for them need not spin.
void Engine::note_bulk(Operation& operation) {
  const Group& group = operation.group();
  operation.is_bulk = std::ranges::any_of(operation.plan().steps, [&](const Step& step) {
    const std::uint64_t bytes = step.kind == Step::Kind::kSend ? step.from.bytes : step.to.bytes;
    return step.kind != Step::Kind::kLocal && bytes > options_.eager_bytes &&
           !peer_of(group, step.peer).is_local();
  });
  if (operation.is_bulk) running_bulk_.fetch_add(1, std::memory_order_relaxed);
}

/// A rank that is gone may have sent all that the operation needs of it before.
void Engine::fail_if_forsaken(const std::shared_ptr<Operation>& operation) {
  const Group& group = operation->group();
  for (std::uint32_t index = 0; index < group.size(); ++index) {
    const std::uint32_t rank = group.ranks()[index];
    if (rank == identity_.rank || !peers_[rank]->gone() || !operation->needs(index)) continue;
    const std::string why = concat(name_of_peer(rank), " ", peers_[rank]->why_gone());
    return fail_operation(operation, Error(ErrorKind::kPeer, why));
  }
}

/// Tells every rank that will send segments that they can come.
void Engine::post_credits(Operation& operation) {
  Group& group = operation.group();
  std::map<std::uint32_t, std::uint64_t> expected;  // rank in the group -> bytes
  for (const Step& step : operation.plan().steps) {
    if (step.kind == Step::Kind::kReceive && step.to.bytes > options_.eager_bytes) {
      expected[step.peer] += step.to.bytes;
    }
  }
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    const bool asked = group.requested.erase({rank, operation.sequence()}) > 0;
    const auto bytes = expected.find(rank);
    if (!asked && bytes == expected.end()) continue;
    Frame frame = frame_for(FrameKind::kPost, group, operation.sequence());
    frame.fingerprint = group.fingerprint(operation.request(), rank);
    frame.offset = bytes == expected.end() ? 0 : bytes->second;
    peer_of(group, rank).send_control(frame, {});
  }
}

void Engine::issue(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                   std::uint32_t segment) {
  if (operation->plan().steps[step].kind == Step::Kind::kSend) {
    issue_send(operation, step, segment);
  } else {
    operation->run_local(step, segment);
    finish_segment(operation, step, segment);
  }
}

void Engine::issue_send(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                        std::uint32_t segment) {
  const Step& send = operation->plan().steps[step];
  Group& group = operation->group();
  if (send.from.bytes <= options_.eager_bytes) {
    if (send_eagerly(operation, step)) finish_segment(operation, step, segment);
    return;
  }
  Segment piece{operation, step, segment};
  if (group.posted[send.peer] > operation->sequence()) {
    peer_of(group, send.peer).send_segment(std::move(piece));
  } else {
    group.uncredited[{send.peer, operation->sequence()}].push_back(std::move(piece));
  }
}

/// The payload is copied, so the step is done: true. False where the receiver's pool is full and it
/// has not posted the operation; the step then waits until it has.
bool Engine::send_eagerly(const std::shared_ptr<Operation>& operation, std::uint32_t step) {
  const Step& send = operation->plan().steps[step];
  Group& group = operation->group();
  Peer& peer = peer_of(group, send.peer);
  const std::span<const std::byte> payload = operation->outgoing(step, 0);
  Frame frame = frame_for(FrameKind::kEager, group, operation->sequence());
  frame.step = send.tag;
  frame.fingerprint = group.fingerprint(operation->request(), send.peer);
  const std::uint64_t bytes = sizeof(Frame) + payload.size();
  if (group.posted[send.peer] > operation->sequence()) {
    frame.flags = kAskedFor;
  } else if (peer.eager_sent - peer.eager_credited + bytes <= options_.eager_pool_bytes) {
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

Frame Engine::frame_of(const Segment& segment) {
  const Operation& operation = *segment.operation;
  const Step& step = operation.plan().steps[segment.step];
  Frame frame = frame_for(FrameKind::kSegment, operation.group(), operation.sequence());
  frame.flags = operation.is_point_to_point() ? kPointToPoint : std::uint8_t{0};
  frame.step = step.tag;
  frame.offset = segment.index * operation.segment_bytes();
  frame.length = static_cast<std::uint32_t>(payload_of(segment).size());
  SLIPSTREAM_ASSERT(frame.length <= options_.segment_bytes, operation.title(), ": ", frame.length);
  return frame;
}

std::span<const std::byte> Engine::payload_of(const Segment& segment) {
  return segment.operation->outgoing(segment.step, segment.index);
}

bool Engine::is_cancelled(const Segment& segment) const { return segment.operation->cancelled(); }

void Engine::segment_done(const Segment& segment) {
  finish_segment(segment.operation, segment.step, segment.index);
}

void Engine::finish_segment(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                            std::uint32_t segment) {
  operation->progressed = now_;
  const bool last = operation->finish_segment(
      step, segment,
      [&](std::uint32_t next, std::uint32_t piece) { issue(operation, next, piece); });
  if (last) complete(operation);
}

void Engine::complete(const std::shared_ptr<Operation>& operation) {
  if (operation->completion()->done()) return;
  Group& group = operation->group();
  // The ranks were out of step before it began: it fails with the rest once all have told.
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
  retire(*operation, false);
  operation->completion()->finish(std::nullopt);
}

/// From here on no transport reads or writes the operation's memory.
void Engine::forget_memory(const Operation& operation) {
  for (const std::uint32_t rank : operation.group().ranks()) {
    // Also of a peer that is gone: one that was silent may wake up, its connections still open.
    if (rank == identity_.rank || peers_[rank]->link() == nullptr) continue;
    for (const Step& step : operation.plan().steps) {
      if (step.kind == Step::Kind::kLocal) continue;
      const bool encodes = step.work == Step::Work::kEncode;
      const Region& sent = encodes ? step.encoded : step.from;
      const Region& region = step.kind == Step::Kind::kSend ? sent : step.to;
      if (region.bytes > 0) peers_[rank]->link()->forget(operation.whole(region));
    }
  }
}

void Engine::fail_operation(const std::shared_ptr<Operation>& operation, const Error& cause) {
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
  retire(*operation, true);
  operation->completion()->finish(
      Error(cause.kind(), concat(operation->title(), ": ", cause.what())));
}

void Engine::retire(const Operation& operation, bool failed) {
  if (operation.is_bulk) running_bulk_.fetch_sub(1, std::memory_order_relaxed);
  in_flight_.fetch_sub(1);
  ++(failed ? stats_.failed_operations : stats_.operations);
  if (--running_ == 0) {
    stats_.busy_nanoseconds += static_cast<std::uint64_t>((Clock::now() - busy_since_).count());
  }
  stats_.last_complete_nanoseconds = nanoseconds(Clock::now());
  if (!keeps_records_.load(std::memory_order_relaxed)) return;
  const Request& request = operation.request();
  const std::scoped_lock lock(records_mutex_);
  if (records_.size() >= kMostRecords) return;
  records_.push_back({request.collective, request.name, operation.group().name(),
                      operation.sequence(), request.count * size_of(request.dtype),
                      nanoseconds(operation.submitted), nanoseconds(operation.started),
                      nanoseconds(Clock::now()), failed});
}

Stats Engine::stats() {
  check_made_in(origin_);
  Stats copy;
  driver_.run_exclusively([&] {
    copy = stats_;
    copy.streams = stream_tuner_.count();
    if (running_ > 0) {
      copy.busy_nanoseconds += static_cast<std::uint64_t>((Clock::now() - busy_since_).count());
    }
  });
  copy.last_submit_nanoseconds = last_submit_.load(std::memory_order_relaxed);
  copy.blocked_nanoseconds = blocked_.load(std::memory_order_relaxed);
  return copy;
}

void Engine::keep_records(bool keep) { keeps_records_.store(keep, std::memory_order_relaxed); }

std::vector<OperationRecord> Engine::take_records() {
  const std::scoped_lock lock(records_mutex_);
  return std::exchange(records_, {});
}

Frame Engine::frame_for(FrameKind kind, const Group& group, std::uint64_t sequence) const {
  Frame frame;
  frame.kind = kind;
  frame.epoch = identity_.epoch;
  frame.group = group.id();
  frame.sequence = sequence;
  return frame;
}

void Engine::broadcast(const Group& group, const Frame& frame, std::span<const std::byte> payload) {
  for (const std::uint32_t rank : group.ranks()) {
    if (rank != identity_.rank) peers_[rank]->send_control(frame, payload);
  }
}

}  // namespace slipstream
