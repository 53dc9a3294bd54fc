#include "transport/shm/shm_transport.h"

#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/unix_socket.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

// Intervals at which sockets are checked, which costs a system call.
constexpr Clock::duration kLookWhileIntroducing = 100us;
constexpr Clock::duration kLookWhileExpecting = 1ms;
constexpr Clock::duration kLookWhileBusy = 10ms;
constexpr Clock::duration kLookWhileAsleep = 100ms;
// A busy poll() reads the clock only once in this many calls.
constexpr std::uint32_t kPollsPerClock = 64;
// Frames per peer and poll(). Only one bulk frame is taken, so that its slot is free before the
// next one is begun.
constexpr std::size_t kControlBatch = 16;
constexpr std::size_t kBulkBatch = 1;
constexpr std::uint64_t kListenerTag = 0;  // tag of epoll events; the tag of a link is its peer + 1

void check_setting(const char* name, std::uint32_t value, std::uint32_t least, std::uint32_t most) {
  if (value >= least && value <= most) return;
  fail(ErrorKind::kConfig, "shared memory: ", name, " is ", value, "; allowed: ", least, " to ",
       most);
}

ChannelGeometry checked_geometry(const ShmOptions& options) {
  check_setting("segment_bytes", options.segment_bytes, 1, kMaxSegmentBytes);
  check_setting("num_slots", options.num_slots, 1, 1024);
  check_setting("eager_bytes", options.eager_bytes, 1, kMaxSegmentBytes);
  check_setting("num_control_slots", options.num_control_slots, 2, 65536);
  return {options.segment_bytes, options.num_slots, options.eager_bytes, options.num_control_slots};
}

std::string random_name() {
  std::array<unsigned char, 16> bits{};
  const auto drawn = ::getrandom(bits.data(), bits.size(), 0);
  SLIPSTREAM_ASSERT(drawn == ssize_t{bits.size()}, "getrandom: ", std::strerror(errno));
  std::string name = "slipstream-";
  for (const unsigned bit : bits) {
    name += "0123456789abcdef"[bit >> 4];
    name += "0123456789abcdef"[bit & 15];
  }
  return name;
}

}  // namespace

ShmTransport::ShmTransport(const Identity& identity, const ShmOptions& options,
                           const Doorbell& own_bell)
    : self_{identity, checked_geometry(options), &own_bell, options.handshake_deadline},
      log_(options.log),
      refusals_(options.log),
      name_(random_name()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1"),
      listener_(listen_abstract(name_)),
      opened_(Clock::now()),
      missing_diallers_(identity.world_size - 1 - identity.rank),
      connected_(identity.world_size, false) {
  watch(listener_.get(), kListenerTag);
}

bool ShmTransport::dial(std::uint32_t peer, const std::string& name) {
  SLIPSTREAM_ASSERT(peer < self_.identity.rank, "rank ", self_.identity.rank, " dials ", peer);
  int error = 0;
  auto introduction = Introduction::dial(self_, peer, name, error);
  if (introduction) {
    introductions_.push_back(std::make_unique<Introduction>(std::move(*introduction)));
    return true;
  }
  if (error != ECONNREFUSED) {
    log_(LogLevel::kWarning, "this rank shares no memory with rank ", peer,
         ", because connecting to its Unix socket '", name, "' failed: ", std::strerror(error));
  }
  return false;
}

bool ShmTransport::poll(Sink& sink) {
  if (!listener_) return false;
  const bool received = receive(sink);
  if (received && ++polls_ % kPollsPerClock != 0) return true;
  const TimePoint now = Clock::now();
  const Clock::duration interval = !introductions_.empty() ? kLookWhileIntroducing
                                   : peers_may_dial(now)   ? kLookWhileExpecting
                                                           : kLookWhileBusy;
  const bool seen = now - last_look_ >= interval && look_at_sockets(sink, now);
  return received || seen;
}

TimePoint ShmTransport::next_event() const {
  if (!listener_) return TimePoint::max();
  const bool soon = !introductions_.empty() || peers_may_dial(Clock::now());
  return last_look_ + (soon ? kLookWhileExpecting : kLookWhileAsleep);
}

void ShmTransport::close() {
  introductions_.clear();
  alive_.clear();
  for (const auto& link : links_) link->close();
  listener_.reset();
  epoll_.reset();
}

bool ShmTransport::receive(Sink& sink) {
  std::size_t received = 0;
  for (ShmLink* const link : alive_) {
    received += link->receive(Channel::kControl, kControlBatch, sink);
  }
  for (ShmLink* const link : alive_) received += link->receive(Channel::kBulk, kBulkBatch, sink);
  return received > 0;
}

bool ShmTransport::look_at_sockets(Sink& sink, TimePoint now) {
  last_look_ = now;
  const bool events = take_socket_events(sink);
  const bool introduced = advance_introductions(sink, now);
  const bool dropped = drop_broken(sink);
  return events || introduced || dropped;
}

bool ShmTransport::take_socket_events(Sink& sink) {
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), int{events.size()}, 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    if (tag == kListenerTag) {
      accept_all();
      continue;
    }
    const auto link = std::ranges::find(alive_, tag - 1, &ShmLink::peer);
    if (link == alive_.end() || !(*link)->peer_is_gone()) continue;
    lose(*link, "has closed its Unix socket: it has ended, or has left the job", sink);
  }
  return count > 0;
}

void ShmTransport::accept_all() {
  try {
    while (Descriptor socket = accept_connection(listener_)) {
      introductions_.push_back(std::make_unique<Introduction>(Introduction::accept(
          self_, std::move(socket), [this](const Hello& hello) { return admit(hello.from); })));
    }
    accept_failed_ = false;
  } catch (const Error& error) {
    if (!std::exchange(accept_failed_, true)) log_(LogLevel::kError, error.what());
  }
}

bool ShmTransport::advance_introductions(Sink& sink, TimePoint now) {
  bool happened = false;
  for (std::size_t i = 0; i < introductions_.size(); ++i) {
    const auto progress = introductions_[i]->advance(now);
    if (progress == Introduction::Progress::kPending) continue;
    happened = true;
    const std::unique_ptr<Introduction> introduction = std::move(introductions_[i]);
    if (progress == Introduction::Progress::kDone) {
      connect(*introduction, sink);
    } else {
      give_up(*introduction, sink);
    }
  }
  std::erase(introductions_, nullptr);
  return happened;
}

void ShmTransport::connect(Introduction& introduction, Sink& sink) {
  const std::uint32_t peer = *introduction.peer();
  if (connected_[peer]) {
    log_(LogLevel::kWarning, "a second connection of rank ", peer, " (",
         introduction.describe_process(), ") over shared memory was closed");
    return;
  }
  connected_[peer] = true;
  if (peer > self_.identity.rank) --missing_diallers_;
  ShmLink& link = *links_.emplace_back(std::make_unique<ShmLink>(peer, introduction.take()));
  alive_.push_back(&link);
  watch(link.socket(), std::uint64_t{peer} + 1);
  sink.connected(peer, link);
}

void ShmTransport::give_up(const Introduction& introduction, Sink& sink) {
  const auto peer = introduction.peer();
  if (peer && !connected_[*peer]) {
    sink.refused(*peer, concat("shared memory: rank ", *peer, " (", introduction.describe_process(),
                               ") ", introduction.reason()));
    return;
  }
  refusals_(introduction.describe_process() + " on this host", introduction.reason());
}

bool ShmTransport::drop_broken(Sink& sink) {
  bool dropped = false;
  for (std::size_t i = alive_.size(); i-- > 0;) {
    if (alive_[i]->given_up()) {
      alive_[i]->close();
      alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const std::string fault = alive_[i]->fault();
    if (fault.empty()) continue;
    lose(alive_[i], fault, sink);
    dropped = true;
  }
  return dropped;
}

void ShmTransport::lose(ShmLink* link, const std::string& reason, Sink& sink) {
  std::erase(alive_, link);
  link->lose(concat("shared memory: ", link->peer_name(), " ", reason), sink);
}

void ShmTransport::watch(int fd, std::uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = tag;
  const int added = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  SLIPSTREAM_ASSERT(added == 0, "epoll_ctl: ", std::strerror(errno));
}

std::string ShmTransport::admit(std::uint32_t peer) const {
  if (peer < self_.identity.rank) return "the higher rank must connect to the lower one";
  return connected_[peer] ? concat("rank ", peer, " is or was connected already") : std::string();
}

bool ShmTransport::peers_may_dial(TimePoint now) const {
  return missing_diallers_ > 0 && now - opened_ < self_.deadline;
}

}  // namespace slipstream
