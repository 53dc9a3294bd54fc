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

/// The link to another rank of this host: stream 0 is the control rings, stream 1 the bulk rings.
/// Both live and die together, with the other process.
class ShmLink final : public Link {
 public:
  static constexpr std::uint32_t kNumStreams = 2;

  ShmLink(std::uint32_t peer, ShmConnection connection);

  [[nodiscard]] std::uint32_t num_streams() const override { return kNumStreams; }
  [[nodiscard]] bool alive(std::uint32_t stream) const override;
  /// When false, the peer rings our bell as soon as it has freed a slot.
  [[nodiscard]] bool ready(std::uint32_t stream) const override;
  bool send(std::uint32_t stream, const Frame& frame, std::span<const std::byte> payload) override;
  [[nodiscard]] bool copies_payload() const override { return true; }
  /// Nothing to do: no payload is referred to once send() or arrived() has returned.
  void forget(std::span<const std::byte>) override {}
  [[nodiscard]] std::string describe() const override { return "shm"; }

  /// Delivers at most `max_frames` of what has arrived on a stream; how many it was.
  std::size_t receive(std::uint32_t stream, std::size_t max_frames, Sink& sink);
  /// Delivers all that is left and reports the streams as lost; lets go of memory and socket.
  void lose(const std::string& reason, Sink& sink);
  /// What the other side wrote into the rings that cannot be, as a reason; empty when nothing.
  [[nodiscard]] std::string fault() const;
  /// Whether the other process has closed its end.
  [[nodiscard]] bool peer_is_gone() const noexcept;
  /// "rank 3 (process 4242 of this host)"
  [[nodiscard]] std::string peer_name() const;
  [[nodiscard]] std::uint32_t peer() const noexcept { return peer_; }
  [[nodiscard]] int socket() const noexcept { return shared_->connection.socket.get(); }
  /// Lets go of memory and socket without a word to the engine, and wakes the peer to see it.
  void close() noexcept;

 private:
  // All that goes when the link is lost.
  struct Shared {
    explicit Shared(ShmConnection from);
    ShmConnection connection;
    std::array<RingProducer, kNumStreams> producers;
    std::array<RingConsumer, kNumStreams> consumers;
  };

  std::uint32_t peer_;
  pid_t pid_;
  std::unique_ptr<Shared> shared_;  // empty once lost or closed
};

}  // namespace slipstream
