#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "test/transport_world.h"
#include "transport/handshake.h"
#include "transport/tcp/tcp_transport.h"

namespace slipstream::test {

/// The key of all jobs that these tests start.
inline JobKey job_key(std::uint8_t seed = 1) {
  JobKey key;
  key.fill(std::byte{seed});
  return key;
}

inline Identity identity(std::uint32_t rank, std::uint32_t world_size) {
  return {.rank = rank, .world_size = world_size, .epoch = 7, .key = job_key()};
}

/// Ranks that are connected by TCP over an address of this host.
inline TransportFamily tcp_family(std::string name, const TcpOptions& options) {
  const auto make = [options](std::span<Doorbell* const> doorbells) {
    const auto world_size = static_cast<std::uint32_t>(doorbells.size());
    Wires wires;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      auto transport = std::make_unique<TcpTransport>(identity(rank, world_size), options);
      for (std::uint32_t peer = 0; peer < rank; ++peer) {
        const auto& lower = static_cast<const TcpTransport&>(*wires.transports[peer]);
        transport->dial(peer, lower.endpoints());
      }
      wires.transports.push_back(std::move(transport));
    }
    return wires;
  };
  TransportFamily family;
  family.name = std::move(name);
  family.make = make;
  return family;
}

/// A rank that a test plays byte by byte. It shakes hands with a TcpTransport as a peer of higher
/// rank, and then writes and reads raw bytes.
class RawPeer {
 public:
  /// Opens `num_open` of its `num_streams` streams to `endpoint` of rank `peer`, which `poll`
  /// drives. Throws if it is refused.
  RawPeer(const Identity& self, std::uint32_t peer, const std::string& endpoint,
          const std::function<void()>& poll, std::uint16_t num_streams = 2,
          std::uint16_t num_open = 2);

  /// Writes all bytes, and drives the acceptor with `poll` whenever the socket is full.
  void write(
      std::uint16_t stream, std::span<const std::byte> bytes,
      const std::function<void()>& poll = [] {});
  /// Reads the available bytes, at most 1 MB.
  std::vector<std::byte> read(std::uint16_t stream);
  /// Whether the acceptor has closed the stream and everything it sent was read.
  [[nodiscard]] bool ended(std::uint16_t stream) const;
  /// Closes with a reset, not in an orderly way.
  void reset(std::uint16_t stream);
  void close(std::uint16_t stream) { sockets_.at(stream).reset(); }

 private:
  std::vector<Descriptor> sockets_;
};

/// A non-blocking socket that is connected to `endpoint` and has sent nothing.
Descriptor connect_to(const std::string& endpoint);

/// A socket that is connected to `endpoint` and has shaken hands; `poll` drives the acceptor.
/// Throws if it is refused.
Descriptor open_stream(const Identity& self, const std::string& endpoint,
                       const Handshake::Call& call, const std::function<void()>& poll);

/// Whether the other end has closed the connection (or reset it).
bool is_ended(const Descriptor& socket);

/// A frame and its payload in the form in which they are sent.
std::vector<std::byte> wire_bytes(const Message& message);

}  // namespace slipstream::test
