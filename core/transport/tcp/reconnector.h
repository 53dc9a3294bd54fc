#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "transport/handshake.h"
#include "transport/identity.h"
#include "transport/tcp/attempt.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/poller.h"

namespace slipstream {

/// Opens lost streams again. As at first, the higher one of two ranks dials. The lower one knocks:
/// it names the lost connection, in case the other has not noticed the loss, and finds out whether
/// the other still listens.
///
/// Attempts go on, with pauses of up to two seconds, until the stream is open or the peer is given
/// up. They go through the peer's addresses in turn, because an interface may be down.
class Reconnector {
 public:
  Reconnector(Poller& poller, const Identity& self, Purpose purpose)
      : poller_(poller), self_(self), purpose_(purpose) {}

  /// Records the addresses of a peer, with the best first. Addresses without a scope that need one
  /// get `link_local_scope`.
  void know(std::uint32_t peer, const std::vector<std::string>& endpoints,
            std::uint32_t link_local_scope);
  /// Starts to open a stream. `tag` is that of its lost connection.
  void begin(StreamId stream, std::uint64_t tag, std::uint32_t num_streams, TimePoint now);
  /// Ends the attempts for a stream, which the peer has opened.
  void end(StreamId stream) { losses_.erase(stream); }
  /// Ends the attempts for all streams of a peer.
  void give_up(std::uint32_t peer);
  void close() { losses_.clear(); }
  [[nodiscard]] bool idle() const noexcept { return losses_.empty(); }

  struct Opened {
    StreamId stream;
    Connection connection;
  };
  /// Continues all attempts, and returns the streams that are open now.
  std::vector<Opened> advance(TimePoint now);
  /// The reason why no attempt to reach the peer can succeed; nothing if one may.
  [[nodiscard]] std::optional<std::string> hopeless(std::uint32_t peer, TimePoint now) const;
  [[nodiscard]] TimePoint next_event() const;

 private:
  struct Peer {
    std::vector<SocketAddress> endpoints;
    TimePoint unheard_since = TimePoint::max();  // nobody has listened there since then
    std::string refusal;                         // the peer's answer, if it takes no connection
  };
  struct Loss {
    std::uint64_t tag = 0;
    std::uint16_t num_streams = 0;
    std::unique_ptr<Attempt> attempt;
    TimePoint next;  // time of the next attempt
    Clock::duration pause{};
    std::size_t tried = 0;  // attempts so far
  };
  void start(StreamId stream, Loss& loss, TimePoint now);
  void take_failure(Peer& peer, Loss& loss, TimePoint now);

  Poller& poller_;
  const Identity self_;
  const Purpose purpose_;
  std::map<std::uint32_t, Peer> peers_;
  std::map<StreamId, Loss> losses_;
};

}  // namespace slipstream
