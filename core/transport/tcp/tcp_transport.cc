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
                 .admit = [this](const Hello& hello) { return admit(hello); },
                 .handshake_deadline = options_.handshake_deadline,
                 .max_unfinished = max_unfinished(self, options_),
                 .log = options_.log}) {}

void TcpTransport::dial(std::uint32_t peer, std::vector<std::string> endpoints) {
  SLIPSTREAM_ASSERT(peer < self_.rank, "rank ", self_.rank, " dials rank ", peer);
  SLIPSTREAM_ASSERT(!closed_ && !links_.contains(peer) && !diallers_.contains(peer), "rank ", peer,
                    " is dialled again");
  diallers_[peer] = std::make_unique<Dialler>(
      poller_, self_,
      Dialler::Plan{.peer = peer,
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
  return called || connected;
}

TimePoint TcpTransport::next_event() const {
  if (closed_) return TimePoint::max();
  if (poller_.pending()) return {};  // in the past, so that poll() is called at once
  TimePoint next = listener_.next_event();
  for (const auto& [peer, dialler] : diallers_) next = std::min(next, dialler->next_event());
  for (const auto& [peer, assembly] : assemblies_) next = std::min(next, assembly.deadline);
  return next;
}

void TcpTransport::close() {
  closed_ = true;
  listener_.close();
  diallers_.clear();
  assemblies_.clear();
  for (const auto& [peer, link] : links_) link->close();
}

/// The reason why a rank of this job cannot have the stream that it asks for; empty if it can.
std::string TcpTransport::admit(const Hello& hello) const {
  if (hello.from < self_.rank) {
    return concat("rank ", hello.from, " connected to rank ", self_.rank,
                  "; the higher rank must connect to the lower one");
  }
  if (hello.num_streams < 2 || hello.num_streams > 1 + kMaxStreams) {
    return concat(hello.num_streams, " streams were requested; allowed: 2 to ", 1 + kMaxStreams);
  }
  return links_.contains(hello.from) ? concat("rank ", hello.from, " is connected already") : "";
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
  for (auto& [hello, socket] : arrivals) {
    Assembly& assembly = assemblies_[hello.from];
    // A peer that dials again after a failure may use another number of streams.
    if (assembly.sockets.size() != hello.num_streams) {
      assembly.sockets.clear();
      assembly.sockets.resize(hello.num_streams);
    }
    assembly.sockets[hello.stream] = std::move(socket);
    assembly.deadline = now + options_.connect_deadline;
  }
  for (auto& node : extract_if(assemblies_, [](auto, auto& it) { return it.complete(); })) {
    connect(node.key(), std::move(node.mapped().sockets), sink);
  }
  for (auto& node : extract_if(assemblies_, [&](auto, auto& it) { return now >= it.deadline; })) {
    options_.log(LogLevel::kWarning, name_of(node.key()), " opened only some of its ",
                 node.mapped().sockets.size(), " streams within ",
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
      connect(node.key(), dialler.take_sockets(), sink);
    } else if (!closed_) {
      sink.refused(node.key(), dialler.reason());
    }
  }
  return !finished.empty();
}

void TcpTransport::connect(std::uint32_t peer, std::vector<Descriptor> sockets, Sink& sink) {
  if (closed_) return;  // the sink has closed it while it was told about another peer
  auto& link = links_[peer];
  for (const Descriptor& socket : sockets) {
    apply(options_.traffic, socket.get());
    if (options_.silence.count() > 0) give_up_after(options_.silence, socket.get());
  }
  link = std::make_unique<TcpLink>(poller_, peer, name_of(peer), std::move(sockets),
                                   options_.max_payload_bytes);
  sink.connected(peer, *link);
}

}  // namespace slipstream
