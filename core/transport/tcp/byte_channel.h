#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

namespace slipstream {

/// The bytes that a connection carries, through its non-blocking socket: as they are, or encrypted.
/// No function blocks or raises SIGPIPE.
class ByteChannel {
 public:
  virtual ~ByteChannel() = default;

  struct Received {
    std::size_t bytes = 0;
    /// Whether everything that had arrived was read. If the peer has sent its last byte, only a
    /// call that reads nothing proves this.
    bool drained = false;
  };
  /// Reads bytes that have arrived into `parts`, in their order. If it reads nothing, ended() or
  /// receive_failure() may have become true.
  virtual Received receive(std::span<const iovec> parts) = 0;
  /// Whether the peer has closed the connection, and every byte before that was read.
  [[nodiscard]] virtual bool ended() const = 0;
  /// The reason why nothing more can be read, such as "recvmsg failed: ..."; empty if there is
  /// none.
  [[nodiscard]] virtual const std::string& receive_failure() const = 0;

  /// Accepts bytes of `parts`, in their order, and returns their number. If it is smaller than the
  /// size of the parts, the socket has no room, or sending has failed. Accepted bytes are not read
  /// from their memory any more.
  virtual std::size_t send(std::span<const iovec> parts) = 0;
  /// Whether accepted bytes still wait for room in the socket. Their number is bounded.
  [[nodiscard]] virtual bool holds_bytes() const = 0;
  /// Writes bytes that wait.
  virtual void flush() = 0;
  /// The reason why nothing more can be sent; empty if there is none.
  [[nodiscard]] virtual const std::string& send_failure() const = 0;
};

}  // namespace slipstream
