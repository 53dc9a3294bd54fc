#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "slipstream/log.h"
#include "transport/handshake.h"
#include "transport/identity.h"
#include "transport/refusal_log.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/poller.h"

namespace slipstream {

/// Listens, and accepts only peers that prove the job key. A stranger costs one descriptor until
/// the deadline of its handshake, and delays nobody.
class Listener {
 public:
  struct Options {
    std::vector<std::string> bind;  ///< addresses; port 0 for any
    Purpose purpose = Purpose::kTcp;
    Handshake::Admit admit;
    Clock::duration handshake_deadline = kHandshakeDeadline;
    /// Unfinished handshakes; above this number the oldest is dropped.
    std::size_t max_unfinished = 64;
    Log log;
  };
  /// A connection whose other end has proved to be rank `hello.from`.
  struct Arrival {
    Hello hello;
    Connection connection;
  };

  /// Throws Error(kConfig) if it cannot listen on an address.
  Listener(Poller& poller, const Identity& self, Options options);
  ~Listener();

  /// The addresses in the form that peers dial, without scopes, which are valid on this host only.
  [[nodiscard]] const std::vector<std::string>& endpoints() const noexcept { return endpoints_; }
  /// The interface of the link-local address on which it listens; 0 if there is none.
  [[nodiscard]] std::uint32_t link_local_scope() const noexcept { return link_local_scope_; }
  /// Ends handshakes that are over, and returns the connections that succeeded.
  std::vector<Arrival> settle();
  /// The time at which settle() must be called even if nothing arrives; TimePoint::max() for never.
  [[nodiscard]] TimePoint next_event() const;
  void close() noexcept;

 private:
  class Door;     // a listening socket
  class Visitor;  // a connection whose handshake is unfinished

  bool accept_some(int fd);
  bool pause_accepting(int error);
  void admit(Descriptor socket, const SocketAddress& from);
  void make_room();

  Poller& poller_;
  const Identity self_;
  const Options options_;
  RefusalLog refusals_;
  std::vector<std::string> endpoints_;
  std::uint32_t link_local_scope_ = 0;
  std::vector<std::unique_ptr<Door>> doors_;
  std::vector<std::unique_ptr<Visitor>> visitors_;  // with the oldest first
  TimePoint accept_again_ = TimePoint::max();       // set while there are no descriptors left
  bool starved_ = false;                            // no descriptors left, and this was logged
};

}  // namespace slipstream
