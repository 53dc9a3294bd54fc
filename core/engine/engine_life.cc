#include <algorithm>
#include <thread>
#include <utility>

#include "engine/engine.h"

// The creation, connection and closing of an engine.
namespace slipstream {
namespace {

constexpr Nanoseconds kLookAgain = 100ms;  // between two calls of connect()'s `look`

}  // namespace

Engine::Engine(const Identity& identity, EngineOptions options, Doorbell& doorbell, Log log)
    : world_{.identity = identity, .options = std::move(options), .log = std::move(log)},
      operations_(world_),
      failures_(world_, operations_),
      messages_(world_, operations_, failures_),
      streams_(world_),
      receiver_(world_, operations_, failures_, messages_, streams_),
      driver_(*this, doorbell, world_.options.driver) {
  world_.host_names.resize(identity.world_size);
  world_.places.resize(identity.world_size);
  for (std::uint32_t rank = 0; rank < identity.world_size; ++rank) {
    world_.peers.push_back(
        rank == identity.rank
            ? nullptr
            : std::make_unique<Peer>(rank, identity.epoch, operations_, world_.stats));
  }
}

Engine::~Engine() {
  if (origin_.is_here()) close();
}

void Engine::add_transport(Transport& transport) {
  transports_.push_back(&transport);
  watch_transports([](const Transport&) { return true; });
}

/// Only tick() polls transports that connect nobody; strangers who dial there can wait.
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
  world_.host_names[rank] = std::move(host_name);
  world_.places[rank] = std::move(place);
}

std::vector<std::uint32_t> Engine::local_ranks() const {
  std::vector<std::uint32_t> local;
  for (std::uint32_t rank = 0; rank < world_.identity.world_size; ++rank) {
    if (rank == world_.identity.rank || world_.peers[rank]->is_local()) local.push_back(rank);
  }
  return local;
}

std::vector<std::pair<std::uint32_t, std::string>> Engine::lost_ranks() {
  origin_.check();
  std::vector<std::pair<std::uint32_t, std::string>> lost;
  driver_.run_exclusively([&] {
    for (const auto& peer : world_.peers) {
      if (peer && (peer->gone() || peer->left())) lost.emplace_back(peer->rank(), peer->why_gone());
    }
  });
  return lost;
}

void Engine::connect(TimePoint deadline, const std::function<void()>& look) {
  driver_.run_exclusively([&] { await_links(deadline, look); });
  driver_.run_exclusively(
      [&] { watch_transports([](const Transport& transport) { return transport.has_links(); }); });
  // Spinning ranks must not keep other ranks of a crowded host from their cores.
  driver_.set_yields(world_.options.driver.yields ||
                     local_ranks().size() > std::thread::hardware_concurrency());
  driver_.start();
}

void Engine::await_links(TimePoint deadline, const std::function<void()>& look) {
  const std::uint32_t self = world_.identity.rank;
  const auto is_missing = [](const auto& peer) { return peer && peer->link() == nullptr; };
  TimePoint next_look = Clock::now() + kLookAgain;
  while (std::ranges::any_of(world_.peers, is_missing)) {
    poll();
    if (!receiver_.refusals().empty()) {
      fail(ErrorKind::kPeer, "rank ", self, " could not connect to ", receiver_.refusals()[0],
           "; check that all ranks run with the same job key, and that their hosts reach each "
           "other");
    }
    if (world_.now >= next_look) {
      look();
      next_look = world_.now + kLookAgain;
    }
    if (world_.now < deadline) {
      driver_.nap(1ms);
      continue;
    }
    std::string missing;
    for (const auto& peer : world_.peers) {
      if (!is_missing(peer)) continue;
      missing += concat(missing.empty() ? "" : ", ", world_.rank_on_host(peer->rank()));
    }
    fail(ErrorKind::kPeerTimeout, "rank ", self, " has no connection yet with ", missing,
         "; check that they run and that this host reaches theirs, or raise "
         "SLIPSTREAM_CONNECT_TIMEOUT");
  }
}

/// Waits until the peers have what they need, at most for goodbye_timeout.
void Engine::settle() {
  const TimePoint deadline = Clock::now() + world_.options.goodbye_timeout;
  const auto is_owed = [](const auto& peer) {
    return peer && peer->available() && (peer->has_unsent() || peer->has_unacknowledged());
  };
  while (std::ranges::any_of(world_.peers, is_owed) && Clock::now() < deadline) {
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
                      concat("rank ", world_.identity.rank, " has closed its engine"));
    for (const auto& [id, group] : world_.groups) {
      failures_.fail_group(*group, cause, !group->running.empty());
    }
    for (const auto& operation : held_.take_all()) start(operation);  // they fail
    settle();
    Frame goodbye;
    goodbye.kind = FrameKind::kGoodbye;
    for (const auto& peer : world_.peers) {
      if (peer) peer->send_control(goodbye, {});
    }
    world_.closed = true;
    settle();
  });
  driver_.stop();
  driver_.run_exclusively([&] {
    for (Transport* transport : transports_) transport->close();
  });
}

}  // namespace slipstream
