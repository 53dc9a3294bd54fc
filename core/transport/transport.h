#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "transport/frame.h"

namespace slipstream {

/// The connection to one peer. It has `num_streams()` streams, each ordered and reliable while it
/// lives. Stream 0 carries control frames and small payloads; the others carry segments.
///
/// No function blocks, and one thread at a time calls them (the engine's driver). A transport that
/// needs registered memory (RDMA) registers the memory of a payload when it first sees it, keeps a
/// cache, and drops the entry in forget(); the engine reuses fused buffers, so they stay
/// registered.
class Link {
 public:
  virtual ~Link() = default;

  [[nodiscard]] virtual std::uint32_t num_streams() const = 0;
  [[nodiscard]] virtual bool alive(std::uint32_t stream) const = 0;
  /// Whether send() would accept a frame on this stream now. The kernel or the ring may be full.
  [[nodiscard]] virtual bool ready(std::uint32_t stream) const = 0;
  /// Accepts the whole frame with its payload, or returns false and accepts nothing. Unless
  /// copies_payload(), the payload must stay valid until the peer acknowledges it or forget()
  /// returns. `frame.length` must equal `payload.size()`.
  virtual bool send(std::uint32_t stream, const Frame& frame,
                    std::span<const std::byte> payload) = 0;
  /// Whether send() copies the payload to a place where the peer is sure to find it. Such segments
  /// need no acknowledgement and are never sent again.
  [[nodiscard]] virtual bool copies_payload() const = 0;
  /// Whether a frame that send() accepted is only half written, so that its payload is still needed
  /// and the peer cannot have it yet.
  [[nodiscard]] virtual bool holds(std::uint32_t /*stream*/) const { return false; }
  /// Makes the transport stop reading and writing this memory before it returns. Frames in flight
  /// that refer to it are completed from a copy. Payload that arrives for it is discarded, but its
  /// frame is still announced, with an empty payload, because acknowledgements count frames.
  virtual void forget(std::span<const std::byte> memory) = 0;
  /// A number by which both ends know the stream's present connection; 0 if a stream has only one
  /// connection in its life.
  [[nodiscard]] virtual std::uint64_t tag(std::uint32_t /*stream*/) const { return 0; }
  /// Whether the transport opens lost streams again, until give_up().
  [[nodiscard]] virtual bool reconnects() const { return false; }
  /// Closes the connections, opens none again, and lets the peer open none. The peer, if it still
  /// lives, thus learns that it is out. May be called from within poll().
  virtual void give_up() = 0;
  /// For messages: "tcp 10.0.0.7:41234 (eth0)", "shm".
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// Receives the events of a transport, which calls it only from within poll().
class Sink {
 public:
  virtual ~Sink() = default;

  /// A peer has proved the job key and is connected from now on. Called once for each peer.
  virtual void connected(std::uint32_t peer, Link& link) = 0;
  /// An attempt to connect to this peer has failed for good (refused key, no route, deadline).
  virtual void refused(std::uint32_t peer, const std::string& reason) = 0;
  /// Returns memory of frame.length bytes for the payload of `frame`, or nullptr to keep it in the
  /// transport's own memory. Transports whose payload is in memory already do not call it. If a
  /// stream died half-way, it may be called again for the same segment.
  virtual std::byte* place(std::uint32_t peer, const Frame& frame) = 0;
  /// A whole frame has arrived. `payload` is in the memory from place() or in the transport's
  /// memory, and valid until arrived() returns.
  virtual void arrived(std::uint32_t peer, std::uint32_t stream, const Frame& frame,
                       std::span<const std::byte> payload) = 0;
  /// A stream is gone. Frames sent on it may or may not have arrived; whole frames that it received
  /// were delivered before. Unless the link reconnects, the peer is gone when its last stream is
  /// gone.
  virtual void stream_lost(std::uint32_t peer, std::uint32_t stream, const std::string& reason) = 0;
  /// A lost stream has a new connection, over which nothing was sent yet.
  virtual void stream_opened(std::uint32_t /*peer*/, std::uint32_t /*stream*/) {}
  /// All streams of a link that reconnects are lost, and no attempt to open one can succeed.
  virtual void unreachable(std::uint32_t /*peer*/, const std::string& /*reason*/) {}
};

/// Connections of one kind, to the peers that can be reached that way. Not thread-safe; it has one
/// driver.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Receives data that have arrived, writes data that were held back, and continues connecting.
  /// Never blocks. Returns whether anything happened.
  virtual bool poll(Sink& sink) = 0;
  /// A descriptor that is readable if poll() has work, or -1 if peers ring the doorbell instead.
  [[nodiscard]] virtual int wait_fd() const = 0;
  /// Whether it has ever connected this rank with a peer.
  [[nodiscard]] virtual bool has_links() const = 0;
  /// The time at which poll() must be called even if nothing arrives; TimePoint::max() for never.
  [[nodiscard]] virtual TimePoint next_event() const { return TimePoint::max(); }
  /// Refuses new connections and closes all links at once. Frames that are not written yet are
  /// lost.
  virtual void close() = 0;
};

}  // namespace slipstream
