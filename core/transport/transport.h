#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "transport/frame.h"

namespace slipstream {

/// The connection to one peer: `num_streams()` streams, each ordered and reliable while it lives.
/// Stream 0 carries control frames and small payloads, the others carry segments.
///
/// Nothing here blocks, and all of it is called by one thread at a time (the engine's driver).
/// A transport that needs registered memory (RDMA) registers a payload's range on first sight, in
/// a cache of its own, and drops it in forget(); the engine gives it stable fused buffers.
class Link {
 public:
  virtual ~Link() = default;

  [[nodiscard]] virtual std::uint32_t num_streams() const = 0;
  [[nodiscard]] virtual bool alive(std::uint32_t stream) const = 0;
  /// Whether send() would take a frame on this stream now (kernel or ring back-pressure).
  [[nodiscard]] virtual bool ready(std::uint32_t stream) const = 0;
  /// Takes the frame and its payload, whole, or returns false and takes nothing.
  /// Unless copies_payload(), the payload must stay valid until the peer acknowledges it or
  /// forget() returns. `frame.length` equals `payload.size()`.
  virtual bool send(std::uint32_t stream, const Frame& frame,
                    std::span<const std::byte> payload) = 0;
  /// True when send() has copied the payload to where the peer cannot miss it: such segments need
  /// no acknowledgement and are never sent again.
  [[nodiscard]] virtual bool copies_payload() const = 0;
  /// After it returns the transport neither reads nor writes this memory: frames in flight that
  /// refer to it are completed from a copy, arriving payload for it is discarded: the frame is
  /// announced all the same, with an empty payload, because acknowledgements count frames.
  virtual void forget(std::span<const std::byte> memory) = 0;
  /// For messages: "tcp 10.0.0.7:41234 (eth0)", "shm".
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// What a transport tells the engine; called from within poll() only.
class Sink {
 public:
  virtual ~Sink() = default;

  /// A peer has proved the job key and can be talked to from now on. Called once for each peer.
  virtual void connected(std::uint32_t peer, Link& link) = 0;
  /// A connection attempt to this peer failed for good (refused key, no route, deadline).
  virtual void refused(std::uint32_t peer, const std::string& reason) = 0;
  /// Where the payload of `frame` should be received: memory of frame.length bytes, or nullptr to
  /// keep it in the transport's own memory. Not called by transports whose payload is in memory
  /// already. May be called again for the same segment when a stream died half-way.
  virtual std::byte* place(std::uint32_t peer, const Frame& frame) = 0;
  /// A whole frame has arrived; `payload` is what place() returned or the transport's memory, valid
  /// until arrived() returns.
  virtual void arrived(std::uint32_t peer, std::uint32_t stream, const Frame& frame,
                       std::span<const std::byte> payload) = 0;
  /// A stream is gone; frames sent on it may or may not have arrived, whole frames that did have
  /// been delivered before. The peer is gone when its last stream is.
  virtual void stream_lost(std::uint32_t peer, std::uint32_t stream, const std::string& reason) = 0;
};

/// Connections of one kind to peers that are reachable that way. Not thread-safe: one driver.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Receives what has arrived, writes what was held back, goes on with connecting. Never blocks.
  /// True when anything happened.
  virtual bool poll(Sink& sink) = 0;
  /// A descriptor that is readable when poll() has work, or -1 when peers ring the doorbell.
  [[nodiscard]] virtual int wait_fd() const = 0;
  /// Whether it connects this rank with any peer, alive or lost.
  [[nodiscard]] virtual bool has_links() const = 0;
  /// When poll() must be called although nothing arrives; TimePoint::max() if never.
  [[nodiscard]] virtual TimePoint next_event() const { return TimePoint::max(); }
  /// Refuses new connections and closes all links at once; frames not yet written are lost.
  virtual void close() = 0;
};

}  // namespace slipstream
