#include <algorithm>
#include <utility>

#include "engine/engine.h"

// What goes wrong: silent and dead peers, stragglers, operations that do not agree. Nothing hangs,
// and every message names who, where and what.
namespace slipstream {
namespace {

constexpr Nanoseconds kTick = 100ms;
constexpr Nanoseconds kProbeAfter = 1s;
constexpr Nanoseconds kCollectDescriptions = 2s;
constexpr int kHeartbeatsPerTimeout = 5;
constexpr std::size_t kLongestText = 4000;  // fits the smallest control slot

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text)).first(std::min(text.size(), kLongestText));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string Engine::name_of_peer(std::uint32_t rank) const {
  std::string name = concat("rank ", rank);
  if (rank == identity_.rank) return name;
  const Link* link = peers_[rank]->link();
  const std::string where = link == nullptr ? "not connected" : link->describe();
  return concat(name, " (", hosts_[rank].empty() ? "" : hosts_[rank] + ", ", where, ")");
}

void Engine::tick() {
  const bool was_stopped = last_poll_ != TimePoint{} && now_ - last_poll_ > kProbeAfter;
  next_tick_ = now_ + kTick;
  if (was_stopped) {
    // This process slept (or was stopped): it has heard nobody, which is not their silence.
    for (const auto& peer : peers_) {
      if (peer) peer->forgive_silence(now_);
    }
  }
  for (Transport* const transport : transports_) {
    if (std::ranges::find(busy_transports_, transport) == busy_transports_.end()) {
      transport->poll(*this);
    }
  }
  watch_peers();
  tell_lost_streams();
  watch_operations();
  watch_mismatches();
}

/// A tick after the loss: a peer that leaves closes its streams in any order, and has said goodbye
/// on one of them.
void Engine::tell_lost_streams() {
  for (const auto& [rank, text] : std::exchange(lost_streams_, {})) {
    if (!peers_[rank]->left() && !peers_[rank]->gone()) log_(LogLevel::kWarning, text);
  }
}

void Engine::watch_peers() {
  if (const std::string news = stream_tuner_.take_news(); !news.empty()) {
    log_(LogLevel::kInfo, news);
  }
  for (const auto& peer : peers_) {
    if (!peer || !peer->reachable()) continue;
    peer->send_acknowledgements(true);
    if (now_ - peer->sent() > options_.peer_timeout / kHeartbeatsPerTimeout) {
      peer->send_heartbeat(now_);
    }
    if (!peer->left() && now_ - peer->heard() > options_.peer_timeout) {
      peer_gone(*peer, concat("has been silent for ", seconds(now_ - peer->heard()), " s"));
    }
  }
}

void Engine::watch_operations() {
  std::vector<std::shared_ptr<Operation>> all;
  for (const auto& [id, group] : groups_) {
    for (const auto& [sequence, operation] : group->running) all.push_back(operation);
    for (const auto& [key, operation] : group->sending) all.push_back(operation);
    for (const auto& [key, operation] : group->receiving) all.push_back(operation);
    all.insert(all.end(), group->receives.begin(), group->receives.end());
  }
  for (const auto& operation : all) {
    if (operation->completion()->done()) continue;
    if (now_ >= operation->deadline) {
      const std::string why =
          concat("reached its timeout after ", seconds(now_ - operation->submitted),
                 " s: ", waiting_for(*operation));
      fail_operation(operation, Error(ErrorKind::kPeerTimeout, why));
      fail_group(operation->group(),
                 Error(ErrorKind::kPeerTimeout, concat(operation->title(), " ", why)), true);
      continue;
    }
    const Nanoseconds timeout = operation->deadline - operation->submitted;
    const Nanoseconds patience = std::min<Nanoseconds>(kProbeAfter, timeout / 4);
    if (now_ - operation->progressed > patience && now_ - operation->probed > patience) {
      probe(*operation);
      operation->probed = now_;
    }
    if (now_ >= operation->report_at) stall(operation);
  }
}

void Engine::probe(const Operation& operation) {
  if (operation.is_point_to_point()) return;
  Group& group = operation.group();
  Frame frame = frame_for(FrameKind::kProbe, group, operation.sequence());
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    frame.fingerprint = group.fingerprint(operation.request(), rank);
    peer_of(group, rank).send_control(frame, {});
  }
}

void Engine::stream_lost(std::uint32_t rank, std::uint32_t stream, const std::string& reason) {
  Peer& peer = *peers_[rank];
  if (peer.gone()) return;
  if (!peer.link()) return;
  if (peer.lose_stream(stream)) {
    lost_streams_.push_back(
        {rank, concat("lost stream ", stream, " to ", name_of_peer(rank), ": ", reason,
                      "; what was in flight on it is sent again on another")});
  } else {
    peer_gone(peer, concat("is gone: ", reason));
  }
}

void Engine::peer_gone(Peer& peer, const std::string& reason) {
  const bool expected = peer.left() || closed_;
  const std::string name = name_of_peer(peer.rank());
  peer.mark_gone(reason);
  if (expected) return fail_operations_with(peer);
  log_(LogLevel::kError, name, " ", reason);
  const Error cause(ErrorKind::kPeer, concat(name, " ", reason));
  const auto groups = groups_;
  for (const auto& [id, group] : groups) {
    if (group->index_of(peer.rank()) != kNotAMember) fail_group(*group, cause, true);
  }
}

/// A rank that has left owes nothing to those that it has finished with; the others fail.
void Engine::fail_operations_with(const Peer& peer) {
  std::vector<std::shared_ptr<Operation>> failed;
  for (const auto& [id, group] : groups_) {
    const std::uint32_t index = group->index_of(peer.rank());
    if (index == kNotAMember) continue;
    if (group->watcher != nullptr) group->watcher->troubled();
    for (const auto& [sequence, operation] : group->running) {
      if (operation->needs(index)) failed.push_back(operation);
    }
    for (const auto& operation : group->receives) {
      if (operation->request().root == index) failed.push_back(operation);
    }
    for (const auto& [key, operation] : group->sending) {
      if (key.first == index) failed.push_back(operation);
    }
    for (const auto& [key, operation] : group->receiving) {
      if (key.first == index) failed.push_back(operation);
    }
  }
  const Error cause(ErrorKind::kPeer, concat(name_of_peer(peer.rank()), " ", peer.why_gone()));
  for (const auto& operation : failed) fail_operation(operation, cause);
}

/// Two ranks passed different things as one operation: everybody tells everybody what it passed.
void Engine::begin_mismatch(Group& group, std::uint64_t sequence) {
  if (sequence >= group.failed_from || group.mismatch) return;
  group.mismatch = Mismatch{sequence, {}, now_ + kCollectDescriptions};
  if (const auto passed = group.passed(sequence)) tell_mismatch(group, *passed);
}

void Engine::tell_mismatch(Group& group, const std::string& passed) {
  group.mismatch->passed[group.rank()] = passed;
  broadcast(group, frame_for(FrameKind::kDescribe, group, group.mismatch->sequence),
            bytes_of(passed));
  if (group.mismatch->passed.size() == group.size()) end_mismatch(group);
}

void Engine::on_describe(Peer& peer, Group& group, const Frame& frame,
                         std::span<const std::byte> payload) {
  begin_mismatch(group, frame.sequence);
  if (!group.mismatch || group.mismatch->sequence != frame.sequence) return;
  group.mismatch->passed[group.index_of(peer.rank())] = text_of(payload);
  if (group.mismatch->passed.size() == group.size()) end_mismatch(group);
}

void Engine::watch_mismatches() {
  const auto groups = groups_;
  for (const auto& [id, group] : groups) {
    if (group->mismatch && group->failed_from > 0 && now_ >= group->mismatch->deadline) {
      end_mismatch(*group);
    }
  }
}

void Engine::end_mismatch(Group& group) {
  std::ostringstream table;
  table << "ranks passed different things as operation " << group.mismatch->sequence
        << " of group '" << group.name() << "':";
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    const auto passed = group.mismatch->passed.find(rank);
    table << "\n  rank " << rank << ": "
          << (passed == group.mismatch->passed.end() ? "nothing yet" : passed->second);
  }
  table << "\nall ranks must pass the same collective, dtype, sizes, operation and root, in the "
           "same order";
  fail_group(group, Error(ErrorKind::kMismatch, table.str()), true);
}

void Engine::fail_group(Group& group, const Error& cause, bool tell, std::uint64_t first) {
  if (group.closed || (group.failure && first >= group.failed_from)) return;
  group.failed_from = first;
  group.failure.emplace(
      cause.kind(), concat(cause.what(), " (group '", group.name(), "' has failed: make it anew)"));
  if (tell) {
    for (const std::uint32_t rank : group.ranks()) {
      if (rank != identity_.rank) send_abort(*peers_[rank], group.id(), cause, first);
    }
  }
  std::vector<std::shared_ptr<Operation>> failed(group.receives.begin(), group.receives.end());
  for (const auto& [sequence, operation] : group.running) {
    if (sequence >= first) failed.push_back(operation);
  }
  for (const auto& [key, operation] : group.sending) failed.push_back(operation);
  for (const auto& [key, operation] : group.receiving) failed.push_back(operation);
  for (const auto& operation : failed) fail_operation(operation, cause);
  drop_undelivered(group, first);
  if (group.watcher != nullptr) group.watcher->troubled();
}

void Engine::drop_undelivered(Group& group, std::uint64_t first) {
  const auto release = [this](const Early& early) {
    const bool in_pool =
        early.frame.kind == FrameKind::kEager && (early.frame.flags & kAskedFor) == 0;
    if (in_pool) release_eager(*peers_[early.peer], sizeof(Frame) + early.payload.size());
  };
  const auto concerned = [first](const auto& entry) { return entry.first.second >= first; };
  for (const auto& [sequence, list] : group.early) {
    if (sequence >= first) std::ranges::for_each(list, release);
  }
  std::ranges::for_each(group.messages, release);
  group.messages.clear();
  std::erase_if(group.early, [first](const auto& entry) { return entry.first >= first; });
  std::erase_if(group.uncredited, concerned);
  std::erase_if(group.unpooled, concerned);
  std::erase_if(group.requested, concerned);
}

void Engine::send_abort(Peer& peer, std::uint64_t group, const Error& cause, std::uint64_t first) {
  Frame frame;
  frame.kind = FrameKind::kAbort;
  frame.group = group;
  frame.sequence = first;
  std::string text(1, static_cast<char>(cause.kind()));
  text += cause.what();
  peer.send_control(frame, bytes_of(text));
}

void Engine::on_abort(Group& group, const Frame& frame, std::span<const std::byte> payload) {
  if (payload.empty()) return;
  const auto kind = static_cast<ErrorKind>(payload[0]);
  const bool known = kind <= ErrorKind::kInternal;
  // Told on: a member that fails now and leaves must not be taken for the cause by the others.
  fail_group(group, Error(known ? kind : ErrorKind::kAborted, text_of(payload.subspan(1))), true,
             frame.sequence);
}

void Engine::connect(TimePoint deadline, const std::function<void()>& look) {
  TimePoint next_look = Clock::now() + kTick;
  driver_.run_exclusively([&] {
    const auto is_missing = [](const auto& peer) { return peer && peer->link() == nullptr; };
    while (std::ranges::any_of(peers_, is_missing)) {
      poll();
      if (!refusals_.empty()) {
        fail(ErrorKind::kPeer, "rank ", identity_.rank, " could not connect to ", refusals_[0]);
      }
      if (now_ >= next_look) {
        look();
        next_look = now_ + kTick;
      }
      if (now_ < deadline) {
        driver_.nap(1ms);
        continue;
      }
      std::string missing;
      for (const auto& peer : peers_) {
        if (is_missing(peer)) missing += concat(missing.empty() ? "" : ", ", peer->rank());
      }
      fail(ErrorKind::kPeerTimeout, "rank ", identity_.rank, " waited for connections with ranks ",
           missing, " in vain; are they running, and can this host reach theirs?");
    }
  });
  driver_.run_exclusively(
      [&] { watch_transports([](const Transport& transport) { return transport.has_links(); }); });
  // Spinning ranks must not keep the others of a crowded host from their cores.
  driver_.set_yields(options_.driver.yields ||
                     local_ranks().size() > std::thread::hardware_concurrency());
  driver_.start();
}

/// Waits until the peers have what they must have, as long as goodbye_timeout.
void Engine::settle() {
  const TimePoint deadline = Clock::now() + options_.goodbye_timeout;
  const auto is_owed = [](const auto& peer) {
    return peer && peer->available() && (peer->has_unsent() || peer->has_unacknowledged());
  };
  while (std::ranges::any_of(peers_, is_owed) && Clock::now() < deadline) {
    if (!poll()) driver_.nap(1ms);
  }
}

void Engine::close() {
  if (!origin_.is_here()) return;  // it owns nothing
  {
    const std::scoped_lock lock(submit_mutex_);
    if (!accepting_) return;
    accepting_ = false;
  }
  driver_.run_exclusively([&] {
    start_submitted();
    const Error cause(ErrorKind::kAborted,
                      concat("rank ", identity_.rank, " has closed its engine"));
    for (const auto& [id, group] : groups_) fail_group(*group, cause, !group->running.empty());
    settle();
    Frame goodbye;
    goodbye.kind = FrameKind::kGoodbye;
    for (const auto& peer : peers_) {
      if (peer) peer->send_control(goodbye, {});
    }
    closed_ = true;
    settle();
  });
  driver_.stop();
  driver_.run_exclusively([&] {
    for (Transport* transport : transports_) transport->close();
  });
}

}  // namespace slipstream
