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

/// What one rank of a host has of another once they know each other.
struct ShmConnection {
  Descriptor socket;  ///< silent from now on; it closes when the other process ends
  SocketOwner process;
  Channel channel;
  RemoteBell bell;
};

/// What every introduction of one rank needs; outlives them all.
struct ShmSelf {
  Identity identity;
  ChannelGeometry geometry;
  const Doorbell* bell = nullptr;
  Clock::duration deadline{};
};

/// How two ranks of a host come to share memory, over a Unix socket, as seen from one of them.
///
///   both      handshake with the job key (transport/handshake.h)
///   acceptor  makes the channel
///   both      send {geometry} with descriptors: bell memory, bell event, acceptor: channel memory
///   both      compare the geometry with their own; the dialler maps the channel
class Introduction {
 public:
  enum class Progress : std::uint8_t { kPending, kDone, kFailed };

  /// Dials the rank that listens under `name`; nothing if nobody does so within reach, and then
  /// `error` is errno.
  static std::optional<Introduction> dial(const ShmSelf& self, std::uint32_t peer,
                                          const std::string& name, int& error);
  static Introduction accept(const ShmSelf& self, Descriptor socket, Handshake::Admit admit);

  /// Goes on as far as it can without blocking. kDone and kFailed are final.
  Progress advance(TimePoint now);
  /// The other rank, once it has proved the key (acceptor) or from the start (dialler).
  [[nodiscard]] std::optional<std::uint32_t> peer() const noexcept { return peer_; }
  /// For messages: "process 4242 of user 1000".
  [[nodiscard]] std::string describe_process() const;
  /// After kFailed; the end of a sentence that begins with the other side.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// After kDone, once.
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
  std::string name_;  // that was dialled; empty for the acceptor
  TimePoint deadline_;
  Descriptor socket_;
  SocketOwner process_;
  Handshake handshake_;
  bool met_ = false;   // handshake done
  bool sent_ = false;  // our descriptors
  Descriptor memory_;  // of the channel, until it is sent
  std::optional<Channel> channel_;
  std::optional<RemoteBell> bell_;
  std::string reason_;
};

}  // namespace slipstream
