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
///
/// If many connections come that prove nothing, the listener stops waiting for them, and looks at
/// all of them together every 50 ms. So a flood of strangers wakes the driver seldom, and ranks
/// that connect meanwhile take three looks.
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
  /// Whether connections are looked at only from time to time, because of many strangers.
  [[nodiscard]] bool is_flooded() const noexcept { return look_at_ != TimePoint::max(); }

 private:
  class Door;     // a listening socket
  class Visitor;  // a connection whose handshake is unfinished

  bool accept_some(int fd);
  bool pause_accepting(int error);
  void admit(Descriptor socket, const SocketAddress& from);
  void count_unproved(TimePoint now);
  void begin_flood(TimePoint now);
  void end_flood();
  void look(TimePoint now);
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
  TimePoint counted_from_{};                        // beginning of the present count
  std::size_t unproved_ = 0;              // connections since then, without those that were proved
  bool were_few_ = true;                  // in the previous count
  TimePoint look_at_ = TimePoint::max();  // during a flood: time of the next look
};

}  // namespace slipstream
