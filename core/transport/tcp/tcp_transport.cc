#include "transport/tcp/tcp_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::uint16_t kMaxStreams = 64;  // streams per peer that carry segments
constexpr std::size_t kMaxUnfinished = 1024;

/// Removes and returns the entries of `map` for which `predicate(key, value)` is true.
template <typename Map, typename Predicate>
std::vector<typename Map::node_type> extract_if(Map& map, Predicate predicate) {
  std::vector<typename Map::node_type> extracted;
  for (auto item = map.begin(); item != map.end();) {
    const auto next = std::next(item);
    if (predicate(item->first, item->second)) extracted.push_back(map.extract(item));
    item = next;
  }
  return extracted;
}

TcpOptions checked(TcpOptions options) {
  if (options.num_streams < 1 || options.num_streams > kMaxStreams) {
    fail(ErrorKind::kConfig, "SLIPSTREAM_STREAMS is ", options.num_streams, "; allowed: 1 to ",
         kMaxStreams);
  }
  const Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  apply(options.traffic, probe.get());  // fails now if the system does not allow it
  return options;
}

/// Breaks a connection whose peer acknowledges nothing for this time, whether data are in flight
/// (TCP_USER_TIMEOUT) or not (keep-alive probes).
void give_up_after(std::chrono::milliseconds silence, int socket) {
  constexpr int kProbes = 4;
  const auto timeout = static_cast<unsigned>(silence.count());
  const int on = 1;
  const int pause = std::max(1, static_cast<int>(silence.count() / 1000 / (kProbes + 1)));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &pause, sizeof pause);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof pause);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
}

/// The peers of a large world open all their streams at once; dropping them would cost retries.
std::size_t max_unfinished(const Identity& self, const TcpOptions& options) {
  const std::size_t diallers = self.world_size - std::min(self.world_size, self.rank + 1);
  return std::max(options.max_unfinished_handshakes,
                  std::min(kMaxUnfinished, diallers * (1u + options.num_streams)));
}

}  // namespace

TcpTransport::TcpTransport(const Identity& self, TcpOptions options)
    : self_(self),
      options_(checked(std::move(options))),
      listener_(poller_, self,
                {.bind = options_.bind,
                 .purpose = purpose(),
                 .admit = [this](const Hello& hello) { return admit(hello); },
                 .handshake_deadline = options_.handshake_deadline,
                 .max_unfinished = max_unfinished(self, options_),
                 .log = options_.log}),
      reconnector_(poller_, self, purpose()) {}

void TcpTransport::dial(std::uint32_t peer, std::vector<std::string> endpoints) {
  SLIPSTREAM_ASSERT(peer < self_.rank, "rank ", self_.rank, " dials rank ", peer);
  SLIPSTREAM_ASSERT(!closed_ && !links_.contains(peer) && !diallers_.contains(peer), "rank ", peer,
                    " is dialled again");
  know(peer, endpoints);
  diallers_[peer] = std::make_unique<Dialler>(
      poller_, self_,
      Dialler::Plan{.purpose = purpose(),
                    .peer = peer,
                    .name = name_of(peer),
                    .endpoints = std::move(endpoints),
                    .num_streams = static_cast<std::uint16_t>(1 + options_.num_streams),
                    .deadline = options_.connect_deadline,
                    .link_local_scope = listener_.link_local_scope()});
}

bool TcpTransport::poll(Sink& sink) {
  if (closed_) return false;
  const bool called = poller_.poll(sink);
  const bool connected = connecting() && go_on_connecting(sink);
  const bool reconnected = reconnect(sink);
  return called || connected || reconnected;
}

TimePoint TcpTransport::next_event() const {
  if (closed_) return TimePoint::max();
  if (poller_.pending()) return {};  // in the past, so that poll() is called at once
  TimePoint next = listener_.next_event();
  for (const auto& [peer, dialler] : diallers_) next = std::min(next, dialler->next_event());
  for (const auto& [peer, assembly] : assemblies_) next = std::min(next, assembly.deadline);
  return std::min(next, reconnector_.next_event());
}

void TcpTransport::close() {
  closed_ = true;
  listener_.close();
  diallers_.clear();
  assemblies_.clear();
  reconnector_.close();
  for (const auto& [peer, link] : links_) link->close();
}

/// The reason why a rank of this job cannot have the stream that it asks for; empty if it can.
std::string TcpTransport::admit(const Hello& hello) const {
  if (hello.renews != 0) return admit_renewal(hello);
  if (hello.from < self_.rank) {
    return concat("rank ", hello.from, " connected to rank ", self_.rank,
                  "; the higher rank must connect to the lower one");
  }
  if (hello.num_streams < 2 || hello.num_streams > 1 + kMaxStreams) {
    return concat(hello.num_streams, " streams were requested; allowed: 2 to ", 1 + kMaxStreams);
  }
  return links_.contains(hello.from) ? concat("rank ", hello.from, " is connected already") : "";
}

/// The same for a stream that was lost, or a knock of a lower rank that has lost it.
std::string TcpTransport::admit_renewal(const Hello& hello) const {
  const auto found = links_.find(hello.from);
  if (found == links_.end() || !found->second->reconnects()) {
    return concat("rank ", self_.rank, " has given up rank ", hello.from);
  }
  if (hello.num_streams == found->second->num_streams()) return "";
  return concat("stream ", hello.stream, " of ", hello.num_streams, " was requested; there are ",
                found->second->num_streams());
}

std::string TcpTransport::name_of(std::uint32_t peer) const {
  return options_.peer_name.empty() ? concat("rank ", peer) : options_.peer_name;
}

bool TcpTransport::connecting() const {
  return !diallers_.empty() || listener_.next_event() != TimePoint::max() || !assemblies_.empty();
}

bool TcpTransport::go_on_connecting(Sink& sink) {
  const bool arrived = gather_arrivals(sink);
  const bool dialled = settle_diallers(sink);
  return arrived || dialled;
}

bool TcpTransport::gather_arrivals(Sink& sink) {
  auto arrivals = listener_.settle();
  const TimePoint now = Clock::now();
  for (Listener::Arrival& arrival : arrivals) {
    const Hello& hello = arrival.hello;
    if (hello.renews != 0) {
      take_renewal(std::move(arrival), sink);
      continue;
    }
    Assembly& assembly = assemblies_[hello.from];
    // A peer that dials again after a failure may use another number of streams.
    if (assembly.connections.size() != hello.num_streams) {
      assembly.connections.clear();
      assembly.connections.resize(hello.num_streams);
    }
    assembly.connections[hello.stream] = std::move(arrival.connection);
    assembly.deadline = now + options_.connect_deadline;
  }
  for (auto& node : extract_if(assemblies_, [](auto, auto& it) { return it.complete(); })) {
    connect(node.key(), std::move(node.mapped().connections), sink);
  }
  for (auto& node : extract_if(assemblies_, [&](auto, auto& it) { return now >= it.deadline; })) {
    options_.log(LogLevel::kWarning, name_of(node.key()), " opened only some of its ",
                 node.mapped().connections.size(), " streams within ",
                 seconds(options_.connect_deadline), " s; this rank closed them");
  }
  return !arrivals.empty();
}

bool TcpTransport::settle_diallers(Sink& sink) {
  const TimePoint now = Clock::now();
  auto finished = extract_if(diallers_, [now](auto, auto& dialler) {
    return dialler->advance(now) != Dialler::State::kDialling;
  });
  for (auto& node : finished) {
    Dialler& dialler = *node.mapped();
    if (dialler.advance(now) == Dialler::State::kDone) {
      connect(node.key(), dialler.take_connections(), sink);
    } else if (!closed_) {
      sink.refused(node.key(), dialler.reason());
    }
  }
  return !finished.empty();
}

void TcpTransport::connect(std::uint32_t peer, std::vector<Connection> connections, Sink& sink) {
  if (closed_) return;  // the sink has closed it while it was told about another peer
  auto& link = links_[peer];
  for (const Connection& connection : connections) prepare(connection.socket);
  link = std::make_unique<TcpLink>(poller_,
                                   TcpLink::Options{.peer = peer,
                                                    .name = name_of(peer),
                                                    .tls = options_.tls,
                                                    .max_payload_bytes = options_.max_payload_bytes,
                                                    .reconnects = options_.reconnects},
                                   std::move(connections), lost_);
  sink.connected(peer, *link);
}

void TcpTransport::prepare(const Descriptor& socket) const {
  apply(options_.traffic, socket.get());
  if (options_.silence.count() > 0) give_up_after(options_.silence, socket.get());
}

// ---- links that reconnect -----------------------------------------------------------------------

/// Continues to open lost streams. Returns whether anything happened.
bool TcpTransport::reconnect(Sink& sink) {
  if (closed_ || (lost_.empty() && reconnector_.idle())) return false;
  const TimePoint now = Clock::now();
  begin_to_reconnect(now);
  auto opened = reconnector_.advance(now);
  for (auto& [stream, connection] : opened) reopen(stream, std::move(connection), sink);
  if (!closed_) find_unreachable(now, sink);
  return !opened.empty();
}

void TcpTransport::begin_to_reconnect(TimePoint now) {
  for (const StreamId stream : std::exchange(lost_, {})) {
    const TcpLink& link = *links_.at(stream.peer);
    if (!link.reconnects() || link.alive(stream.stream)) continue;
    reconnector_.begin(stream, link.tag(stream.stream), link.num_streams(), now);
  }
}

void TcpTransport::find_unreachable(TimePoint now, Sink& sink) {
  for (const auto& [peer, link] : links_) {
    if (link->any_alive()) continue;
    if (!link->reconnects()) {
      reconnector_.give_up(peer);
      continue;
    }
    const auto reason = reconnector_.hopeless(peer, now);
    if (!reason) continue;
    link->give_up();
    reconnector_.give_up(peer);
    sink.unreachable(peer, *reason);
    if (closed_) return;
  }
}

/// A peer has opened a stream again, or a lower rank asks for that.
void TcpTransport::take_renewal(Listener::Arrival arrival, Sink& sink) {
  const StreamId stream{arrival.hello.from, arrival.hello.stream};
  TcpLink& link = *links_.at(stream.peer);
  if (!link.reconnects()) return;  // given up since it was admitted
  const bool is_knock = stream.peer < self_.rank;
  const bool is_stale = is_knock && link.tag(stream.stream) != arrival.hello.renews;
  if (link.alive(stream.stream) && !is_stale) {
    link.abandon(stream.stream, "was lost at the other end", sink);
  }
  if (!is_knock) reopen(stream, std::move(arrival.connection), sink);
}

void TcpTransport::reopen(StreamId stream, Connection connection, Sink& sink) {
  TcpLink& link = *links_.at(stream.peer);
  if (closed_ || !link.reconnects()) return;
  prepare(connection.socket);
  link.reopen(stream.stream, std::move(connection));
  reconnector_.end(stream);
  sink.stream_opened(stream.peer, stream.stream);
}

}  // namespace slipstream
