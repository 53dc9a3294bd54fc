#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/doorbell.h"
#include "base/unix_socket.h"
#include "transport/handshake.h"
#include "transport/identity.h"
#include "transport/shm/channel.h"

namespace slipstream {

/// The connection of one rank to another on the same host.
struct ShmConnection {
  Descriptor socket;  ///< silent from now on; closes when the other process ends
  SocketOwner process;
  Channel channel;
  RemoteBell bell;
};

/// Data that all introductions of one rank use; they must outlive the introductions.
struct ShmSelf {
  Identity identity;
  ChannelGeometry geometry;
  const Doorbell* bell = nullptr;
  Clock::duration deadline{};
};

/// The exchange by which two ranks of a host come to share memory, over a Unix socket, as one of
/// them sees it.
///
///   both      handshake with the job key (transport/handshake.h)
///   acceptor  creates the channel
///   both      send {geometry} with descriptors: bell memory, bell event, acceptor: channel memory
///   both      compare the geometry with their own; the dialler maps the channel
class Introduction {
 public:
  enum class Progress : std::uint8_t { kPending, kDone, kFailed };

  /// Dials the rank that listens under `name`. Returns nothing if nobody within reach does; `error`
  /// is errno then.
  static std::optional<Introduction> dial(const ShmSelf& self, std::uint32_t peer,
                                          const std::string& name, int& error);
  static Introduction accept(const ShmSelf& self, Descriptor socket, Handshake::Admit admit);

  /// Continues as far as possible without blocking. kDone and kFailed are final.
  Progress advance(TimePoint now);
  /// The other rank, known to the dialler from the start and to the acceptor once the key is
  /// proved.
  [[nodiscard]] std::optional<std::uint32_t> peer() const noexcept { return peer_; }
  /// For messages: "process 4242 of user 1000".
  [[nodiscard]] std::string describe_process() const;
  /// The reason after kFailed, as the end of a sentence whose subject is the other side.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// Valid once, after kDone.
  ShmConnection take();

 private:
  Introduction(const ShmSelf& self, Descriptor socket, Handshake handshake);
  [[nodiscard]] bool is_dialler() const noexcept { return !name_.empty(); }
  bool connect();
  bool shake_hands();
  bool send_own();
  bool receive_theirs();
  void open_theirs(Parcel parcel);

  const ShmSelf* self_;
  std::optional<std::uint32_t> peer_;
  std::string name_;  // the name that was dialled; empty for the acceptor
  TimePoint deadline_;
  Descriptor socket_;
  SocketOwner process_;
  Handshake handshake_;
  bool met_ = false;   // whether the handshake is done
  bool sent_ = false;  // whether our descriptors are sent
  Descriptor memory_;  // descriptor of the channel, until it is sent
  std::optional<Channel> channel_;
  std::optional<RemoteBell> bell_;
  std::string reason_;
};

}  // namespace slipstream
