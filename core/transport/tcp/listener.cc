#include "transport/tcp/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "slipstream/error.h"
#include "transport/tcp/opening.h"

namespace slipstream {
namespace {

constexpr int kBacklog = 4096;        // the kernel limits it to net.core.somaxconn
constexpr int kAcceptsPerCall = 16;   // limited, so that a flood leaves time for the streams
constexpr int kAcceptsPerLook = 256;  // the same during a flood
// A flood is more than a quarter of `max_unfinished` unproved connections in this time; chosen by
// hand.
constexpr Clock::duration kCountTime = 250ms;
constexpr Clock::duration kLookTime = 50ms;  // time between two looks during a flood
constexpr Clock::duration kPause = 100ms;  // time before accepting again after descriptors ran out

void set_option(int fd, int level, int option) {
  const int on = 1;
  ::setsockopt(fd, level, option, &on, sizeof on);
}

/// Returns nothing if `may_be_tentative` is true and the kernel does not have the address, or not
/// yet. An IPv6 address cannot be used in its first seconds, while the kernel asks other hosts
/// whether they have it (RFC 4862, section 5.4).
Descriptor listen_on(const std::string& text, bool may_be_tentative) {
  const auto address = SocketAddress::parse(text);
  if (!address) {
    fail(ErrorKind::kConfig, "cannot listen on '", text,
         "'; allowed: an address such as 10.0.0.1, 10.0.0.1:4000 or [fd00::1]:4000");
  }
  const auto attempt = [&](const char* call, int result) {
    if (result >= 0) return result;
    fail(ErrorKind::kConfig, "cannot listen on ", address->text(), ": ", call,
         " failed: ", std::strerror(errno),
         "; choose an address of this host and a free port (SLIPSTREAM_IFACE, SLIPSTREAM_PORT)");
  };
  Descriptor socket(
      attempt("socket",
              ::socket(address->family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP)),
      "socket");
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR);
  if (address->family() == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  const int bound = ::bind(socket.get(), address->raw(), address->raw_size());
  if (bound < 0 && errno == EADDRNOTAVAIL && may_be_tentative && address->family() == AF_INET6) {
    return {};
  }
  attempt("bind", bound);
  attempt("listen", ::listen(socket.get(), kBacklog));
  return socket;
}

}  // namespace

class Listener::Door final : public Watcher {
 public:
  Door(Listener& listener, Descriptor socket) : listener_(listener), socket_(std::move(socket)) {
    watch();
  }
  ~Door() override { unwatch(); }

  bool on_events(std::uint32_t /*events*/, Sink& /*sink*/) override {
    return listener_.accept_some(socket_.get());
  }
  void watch() { listener_.poller_.watch(socket_.get(), *this); }
  void unwatch() noexcept { listener_.poller_.unwatch(socket_.get()); }
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  Listener& listener_;
  Descriptor socket_;
};

class Listener::Visitor final : public Watcher {
 public:
  Visitor(Poller& poller, Descriptor socket, const SocketAddress& from, Opening opening)
      : poller_(poller), socket_(std::move(socket)), from_(from), opening_(std::move(opening)) {}
  ~Visitor() override {
    if (socket_ && watched_) poller_.unwatch(socket_.get());
  }

  bool on_events(std::uint32_t /*events*/, Sink& /*sink*/) override {
    advance();
    return false;
  }
  void advance() {
    if (progress_ == Handshake::Progress::kPending) progress_ = opening_.advance(socket_.get());
  }
  /// Has advance() called when the socket has news, from now on.
  void watch() {
    if (!std::exchange(watched_, true)) poller_.watch(socket_.get(), *this);
  }
  /// The state of the handshake; an overdue one fails here.
  Handshake::Progress check(TimePoint now) {
    const bool pending = progress_ == Handshake::Progress::kPending;
    if (pending && now >= opening_.deadline()) progress_ = opening_.advance(socket_.get());
    return progress_;
  }
  Connection take_connection() {
    if (watched_) poller_.unwatch(socket_.get());
    return opening_.take_connection(std::move(socket_));
  }
  [[nodiscard]] const Opening& opening() const noexcept { return opening_; }
  [[nodiscard]] std::string name() const { return from_.text(); }

 private:
  Poller& poller_;
  Descriptor socket_;
  const SocketAddress from_;
  Opening opening_;
  bool watched_ = false;
  Handshake::Progress progress_ = Handshake::Progress::kPending;
};

Listener::Listener(Poller& poller, const Identity& self, Options options)
    : poller_(poller), self_(self), options_(std::move(options)), refusals_(options_.log) {
  for (const std::string& text : options_.bind) {
    const bool is_last_hope = doors_.empty() && &text == &options_.bind.back();
    Descriptor socket = listen_on(text, !is_last_hope);
    if (!socket) {
      options_.log(
          LogLevel::kWarning, "this rank does not listen on ", text,
          ", because this host does not have the address (yet); peers may use another one");
      continue;
    }
    doors_.push_back(std::make_unique<Door>(*this, std::move(socket)));
    const SocketAddress address = local_address(doors_.back()->fd());
    if (address.is_link_local()) link_local_scope_ = address.scope();
    endpoints_.push_back(address.with_scope(0).text());
  }
}

Listener::~Listener() = default;

std::vector<Listener::Arrival> Listener::settle() {
  std::vector<Arrival> arrivals;
  const TimePoint now = Clock::now();
  if (now >= accept_again_) {
    accept_again_ = TimePoint::max();
    for (const auto& door : doors_) poller_.call_again(door->fd());
  }
  if (now >= look_at_) look(now);
  std::erase_if(visitors_, [&](const auto& visitor) {
    switch (visitor->check(now)) {
      case Handshake::Progress::kPending:
        return false;
      case Handshake::Progress::kDone:
        arrivals.push_back({visitor->opening().handshake().hello(), visitor->take_connection()});
        if (unproved_ > 0) --unproved_;
        return true;
      default:
        refusals_(visitor->name(), visitor->opening().reason());
        return true;
    }
  });
  return arrivals;
}

TimePoint Listener::next_event() const {
  TimePoint next = std::min(accept_again_, look_at_);
  for (const auto& visitor : visitors_) next = std::min(next, visitor->opening().deadline());
  return next;
}

void Listener::close() noexcept {
  doors_.clear();
  visitors_.clear();
  accept_again_ = look_at_ = TimePoint::max();
}

void Listener::count_unproved(TimePoint now) {
  const std::size_t many = options_.max_unfinished / 4;
  if (now - counted_from_ >= kCountTime) {
    were_few_ = unproved_ <= many;
    counted_from_ = now;
    unproved_ = 0;
  }
  if (++unproved_ <= many) return;
  were_few_ = false;
  if (!is_flooded()) begin_flood(now);
}

void Listener::begin_flood(TimePoint now) {
  look_at_ = now + kLookTime;
  for (const auto& door : doors_) door->unwatch();
}

void Listener::end_flood() {
  look_at_ = TimePoint::max();
  for (const auto& door : doors_) door->watch();
  for (const auto& visitor : visitors_) visitor->watch();
}

/// Advances all connections, and accepts those that have come since the last look. A connection
/// that has sent something wrong meanwhile never counts among the unfinished ones.
void Listener::look(TimePoint now) {
  look_at_ = now + kLookTime;
  for (const auto& visitor : visitors_) visitor->advance();
  for (const auto& door : doors_) {
    for (int i = 0; i < kAcceptsPerLook / kAcceptsPerCall && accept_some(door->fd()); ++i) {
    }
  }
  if (were_few_ || now - counted_from_ >= kCountTime) end_flood();
}

/// Returns whether more connections may be waiting.
bool Listener::accept_some(int fd) {
  for (int i = 0; i < kAcceptsPerCall; ++i) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    auto* const address = reinterpret_cast<sockaddr*>(&from);
    const int accepted = ::accept4(fd, address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted >= 0) {
      starved_ = false;
      admit(Descriptor(accepted, "accept4"), SocketAddress(*address));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return pause_accepting(errno);
    }
    // Other errors concern only the connection that was to be accepted, which has ended with them.
  }
  return true;
}

bool Listener::pause_accepting(int error) {
  if (!std::exchange(starved_, true)) {
    options_.log(LogLevel::kWarning,
                 "this rank cannot accept connections: accept4 failed: ", std::strerror(error),
                 "; new connections wait until this process has closed files (see ulimit -n)");
  }
  accept_again_ = Clock::now() + kPause;
  return false;
}

void Listener::admit(Descriptor socket, const SocketAddress& from) {
  set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY);
  const TimePoint now = Clock::now();
  count_unproved(now);
  Handshake handshake =
      Handshake::accept(self_, options_.purpose, options_.admit, now + options_.handshake_deadline);
  auto visitor = std::make_unique<Visitor>(poller_, std::move(socket), from,
                                           Opening(TlsEnd::kClient, std::move(handshake)));
  if (is_flooded()) {
    visitor->advance();
    if (visitor->check(now) == Handshake::Progress::kFailed) {
      return refusals_(visitor->name(), visitor->opening().reason());
    }
  } else {
    visitor->watch();
  }
  make_room();
  visitors_.push_back(std::move(visitor));
}

/// Drops the oldest visitor if there are too many. Visitors that have sent nothing go first.
void Listener::make_room() {
  if (visitors_.size() < options_.max_unfinished) return;
  auto victim = std::find_if(visitors_.begin(), visitors_.end(), [](const auto& each) {
    return !each->opening().handshake().greeted();
  });
  if (victim == visitors_.end()) victim = visitors_.begin();
  refusals_((*victim)->name(), concat("was dropped: more than ", options_.max_unfinished,
                                      " connections wait for their handshake"));
  visitors_.erase(victim);
}

}  // namespace slipstream
