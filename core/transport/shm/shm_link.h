#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/shm/introduction.h"
#include "transport/shm/ring.h"
#include "transport/transport.h"

namespace slipstream {

/// The link to another rank of this host. Stream 0 is the control rings, stream 1 the bulk rings.
/// Both live exactly as long as the connection to the other process.
class ShmLink final : public Link {
 public:
  static constexpr std::uint32_t kNumStreams = 2;

  ShmLink(std::uint32_t peer, ShmConnection connection);

  [[nodiscard]] std::uint32_t num_streams() const override { return kNumStreams; }
  [[nodiscard]] bool alive(std::uint32_t stream) const override;
  /// If it is false, the peer rings our bell as soon as it has freed a slot.
  [[nodiscard]] bool ready(std::uint32_t stream) const override;
  bool send(std::uint32_t stream, const Frame& frame, std::span<const std::byte> payload) override;
  [[nodiscard]] bool copies_payload() const override { return true; }
  /// Nothing to do: no payload is used after send() or arrived() has returned.
  void forget(std::span<const std::byte>) override {}
  /// The transport closes the link at its next look at the sockets.
  void give_up() override { given_up_ = true; }
  [[nodiscard]] bool given_up() const noexcept { return given_up_; }
  [[nodiscard]] std::string describe() const override { return "shm"; }

  /// Delivers at most `max_frames` frames that have arrived on a stream. Returns their number.
  std::size_t receive(std::uint32_t stream, std::size_t max_frames, Sink& sink);
  /// Delivers all remaining frames, reports the streams as lost, and releases memory and socket.
  void lose(const std::string& reason, Sink& sink);
  /// A description of impossible values that the other side wrote into the rings; empty if there
  /// are none.
  [[nodiscard]] std::string fault() const;
  /// Whether the other process has closed its end.
  [[nodiscard]] bool peer_is_gone() const noexcept;
  /// "rank 3 (process 4242 of this host)"
  [[nodiscard]] std::string peer_name() const;
  [[nodiscard]] std::uint32_t peer() const noexcept { return peer_; }
  [[nodiscard]] int socket() const noexcept { return shared_->connection.socket.get(); }
  /// Releases memory and socket without telling the engine, and wakes the peer so that it notices.
  void close() noexcept;

 private:
  // Everything that is released when the link is lost.
  struct Shared {
    explicit Shared(ShmConnection from);
    ShmConnection connection;
    std::array<RingProducer, kNumStreams> producers;
    std::array<RingConsumer, kNumStreams> consumers;
  };

  std::uint32_t peer_;
  pid_t pid_;
  std::unique_ptr<Shared> shared_;  // empty once lost or closed
  bool given_up_ = false;
};

}  // namespace slipstream
