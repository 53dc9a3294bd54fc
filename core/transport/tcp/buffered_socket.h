#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

struct bio_st;

namespace slipstream {

/// A socket for OpenSSL, which reads from it directly. Writes are collected until flush(), so that
/// several records take one system call. Never blocks and never raises SIGPIPE.
class BufferedSocket {
 public:
  explicit BufferedSocket(int socket) : socket_(socket) {}

  /// Reads bytes that have arrived and returns their number; 0 if there are none, now or for good.
  std::size_t read(std::span<std::byte> into);
  void write(std::span<const std::byte> bytes);
  /// Sends collected bytes as far as the socket has room.
  void flush();
  /// Collected bytes that are not sent yet.
  [[nodiscard]] std::size_t held() const noexcept { return outgoing_.size() - sent_; }
  /// Bytes read so far.
  [[nodiscard]] std::size_t received() const noexcept { return received_; }

  /// Whether the peer has closed the connection and everything was read.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// The failed system call and its reason; empty if none has failed.
  [[nodiscard]] const std::string& read_failure() const noexcept { return read_failure_; }
  [[nodiscard]] const std::string& write_failure() const noexcept { return write_failure_; }

 private:
  const int socket_;
  std::vector<std::byte> outgoing_;
  std::size_t sent_ = 0;  // bytes of outgoing_
  std::size_t received_ = 0;
  bool ended_ = false;
  std::string read_failure_;
  std::string write_failure_;
};

/// Returns OpenSSL's view of the socket, which must outlive it. The end of the connection and
/// failures do not appear in it: OpenSSL waits, and its caller asks the socket.
bio_st* make_bio(BufferedSocket& socket);

}  // namespace slipstream
