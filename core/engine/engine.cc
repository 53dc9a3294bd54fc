#include "engine/engine.h"

#include <algorithm>
#include <utility>

// Operations between their submission and their start, and one turn of the driver.
namespace slipstream {
namespace {

constexpr Nanoseconds kTick = 100ms;
// Gap between two polls that shows that this process did not run.
constexpr Nanoseconds kStopped = 1s;
// Interval between two looks at the flags of gated operations; a device wakes nobody.
constexpr Nanoseconds kLookAtGates = 20us;

std::int64_t nanoseconds(TimePoint at) {
  return std::chrono::duration_cast<Nanoseconds>(at.time_since_epoch()).count();
}

/// The number of float32 bytes in one segment: as many as it can carry encoded, or also unencoded
/// if the plan sends plain data.
std::uint64_t decoded_segment(const Plan& plan, std::uint64_t segment_bytes) {
  const Codec codec = plan.codec;
  if (codec == Codec::kNone) return segment_bytes;
  const std::size_t block = codec_block(codec);
  const std::uint64_t most = plan.sends_plain ? block * sizeof(float) : encoded_bytes(codec, block);
  const std::uint64_t blocks = segment_bytes / most;
  if (blocks == 0) {
    fail(ErrorKind::kConfig, "SLIPSTREAM_SEGMENT_BYTES is ", segment_bytes, "; codec ",
         name_of(codec), " needs at least ", most, " bytes: raise it, or choose another codec");
  }
  return blocks * block * sizeof(float);
}

}  // namespace

std::shared_ptr<Completion> Engine::submit(const std::shared_ptr<Group>& group, Request request) {
  origin_.check();
  const EngineOptions& options = world_.options;
  const Shape shape = shape_of(request, *group);
  const bool waits_soon = request.waits_soon;
  const TimePoint now = Clock::now();
  std::shared_ptr<Completion> completion;
  {
    const std::scoped_lock lock(submit_mutex_);
    if (!accepting_) fail_closed();
    if (options.algorithm == Algorithm::kAuto) group->complete(request);
    const Algorithm forced =
        request.algorithm == Algorithm::kAuto ? options.algorithm : request.algorithm;
    const Nanoseconds timeout =
        request.timeout.count() > 0 ? request.timeout : options.operation_timeout;
    auto plan = group->plan_for(shape, forced);
    const std::uint64_t segment_bytes = decoded_segment(
        *plan, request.segment_bytes == 0 ? options.segment_bytes : request.segment_bytes);
    auto operation =
        std::make_shared<Operation>(std::move(request), std::move(plan), group, segment_bytes);
    operation->set_order(next_order_++);
    if (!operation->is_point_to_point()) operation->set_sequence(group->next_sequence++);
    operation->submitted = now;
    operation->deadline = now + timeout;
    completion = operation->completion();
    submitted_.push_back(std::move(operation));
    operations_.note_submitted();
  }
  last_submit_.store(nanoseconds(now), std::memory_order_relaxed);
  driver_.kick(waits_soon);
  // The caller has nothing to wait for, so another thread must take care of older operations in
  // flight.
  if (waits_soon && completion->done() && has_work()) driver_.kick(false);
  return completion;
}

void Engine::fail_closed() const {
  fail(ErrorKind::kUsage, "the engine of rank ", world_.identity.rank,
       " is closed; initialise Slipstream again before communicating");
}

std::string Engine::state_of(const Completion& completion) {
  std::string text;
  driver_.run_exclusively([&] {
    world_.now = Clock::now();
    start_submitted();
    text = failures_.state_of(completion);
  });
  return text;
}

bool Engine::wait(Completion& completion, TimePoint until) {
  if (completion.done()) return true;
  origin_.check();
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
    world_.log(LogLevel::kError, "the engine has failed, and all groups with it: ", error.what());
    failures_.fail_everything(Error(ErrorKind::kInternal, error.what()));
    return false;
  }
}

bool Engine::poll_once() {
  world_.now = Clock::now();
  bool any = woken_.load(std::memory_order_relaxed) && woken_.exchange(false);
  start_submitted();
  any = start_held() || any;
  for (Transport* transport : busy_transports_) any = transport->poll(receiver_) || any;
  any = pump_peers() || any;
  if (world_.now >= next_tick_) tick();
  world_.last_poll = world_.now;
  return any;
}

bool Engine::pump_peers() {
  const bool waited = std::exchange(network_waits_, false);
  bool any = false, unsent = false;
  for (const auto& peer : world_.peers) {
    if (!peer || !peer->reachable()) continue;
    const std::uint64_t delivered = peer->take_delivered();
    if (waited && !peer->is_local() && peer->waits()) streams_.note(*peer, delivered);
    if (peer->has_unsent()) any = peer->pump(world_.now) || any;
    unsent = unsent || peer->has_unsent();
    network_waits_ = network_waits_ || (!peer->is_local() && peer->waits());
    peer->send_acknowledgements(false);
  }
  unsent_.store(unsent, std::memory_order_relaxed);
  streams_.tune(waited);
  return any;
}

void Engine::tick() {
  const bool was_stopped =
      world_.last_poll != TimePoint{} && world_.now - world_.last_poll > kStopped;
  next_tick_ = world_.now + kTick;
  if (was_stopped) {
    // This process slept or was stopped, so it is not the peers' fault that it heard nothing.
    const auto gap = std::chrono::round<std::chrono::milliseconds>(world_.now - world_.last_poll);
    world_.note(FlightEvent::Kind::kPaused, kNoRank, nullptr, 0,
                concat("this process did not run for ", seconds(gap), " s"));
    for (const auto& peer : world_.peers) {
      if (peer) peer->forgive_silence(world_.now);
    }
  }
  for (Transport* const transport : transports_) {
    if (std::ranges::find(busy_transports_, transport) == busy_transports_.end()) {
      transport->poll(receiver_);
    }
  }
  if (const std::string news = streams_.take_news(); !news.empty()) {
    world_.log(LogLevel::kInfo, news);
  }
  failures_.tick();
}

TimePoint Engine::next_event() const {
  TimePoint next = next_tick_;
  for (const Transport* transport : busy_transports_)
    next = std::min(next, transport->next_event());
  return held_.empty() ? next : std::min(next, Clock::now() + kLookAtGates);
}

void Engine::start_submitted() {
  std::vector<std::shared_ptr<Operation>> submitted;
  {
    const std::scoped_lock lock(submit_mutex_);
    submitted.swap(submitted_);
  }
  for (std::size_t i = 0; i < submitted.size(); ++i) operations_.note_started();
  const auto is_gated = [](const auto& each) { return each->request().ring != nullptr; };
  const auto held = held_.empty() ? std::ranges::find_if(submitted, is_gated) : submitted.begin();
  for (auto each = held; each != submitted.end(); ++each) held_.add(std::move(*each));
  submitted.erase(held, submitted.end());
  start_in_order(submitted);
}

bool Engine::start_held() {
  if (held_.empty()) return false;
  const auto ready = held_.take_ready();
  for (const auto& operation : ready) {
    operation->deadline += world_.now - operation->submitted;  // a device may take its time
  }
  start_in_order(ready);
  return !ready.empty();
}

void Engine::start_in_order(std::span<const std::shared_ptr<Operation>> ready) {
  for (; !ready.empty(); ready = ready.subspan(1)) {
    try {
      start(ready.front());
    } catch (const std::exception& error) {
      operations_.fail(ready.front(), Error(ErrorKind::kInternal, error.what()));
      held_.put_back(ready.subspan(1));
      throw;
    }
  }
}

void Engine::start(const std::shared_ptr<Operation>& operation) {
  Group& group = operation->group();
  operation->started = operation->progressed = world_.now;
  operation->report_at = operation->started + world_.options.stall_after;
  if (!operation->is_point_to_point()) {
    group.started = std::max(group.started, operation->sequence() + 1);
    group.remember(*operation);
  }
  if (has_open_ring(*operation)) {
    const Error cause(ErrorKind::kAborted,
                      concat(world_.name_of(world_.identity.rank),
                             " has ended its use of the device, or its device has failed"));
    failures_.fail_group(group, cause, true);
  }
  const bool failed = operation->is_point_to_point() ? group.failure.has_value()
                                                     : operation->sequence() >= group.failed_from;
  if (failed || group.closed) {
    const Error closed(ErrorKind::kAborted, "this rank has closed the group; create a new one");
    return operations_.fail(operation, group.failure.value_or(closed));
  }
  switch (operation->request().collective) {
    case Collective::kSend:
      return messages_.start_send(operation);
    case Collective::kReceive:
      return messages_.start_receive(operation);
    default:
      break;
  }
  operations_.admit(operation);
  if (group.mismatch && group.mismatch->sequence == operation->sequence()) {
    return failures_.tell_mismatch(group, describe(operation->request()));
  }
  operations_.begin(operation);
  receiver_.deliver_early(operation);
  if (operation->completion()->done()) return;
  if (const auto cause = operations_.why_forsaken(*operation)) {
    failures_.fail_group(group, *cause, true, operation->sequence());
  }
}

FlightSnapshot Engine::flight() {
  origin_.check();
  FlightSnapshot snapshot;
  driver_.run_exclusively([&] {
    world_.now = Clock::now();
    start_submitted();
    snapshot = failures_.snapshot();
    for (const auto& operation : held_.all()) {
      Operations::write_record(*operation, snapshot.operations.emplace_back());
    }
  });
  return snapshot;
}

Stats Engine::stats() {
  origin_.check();
  Stats stats;
  driver_.run_exclusively([&] {
    stats = operations_.stats();
    stats.streams = streams_.count();
  });
  stats.last_submit_nanoseconds = last_submit_.load(std::memory_order_relaxed);
  stats.blocked_nanoseconds = blocked_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace slipstream
