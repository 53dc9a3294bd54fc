#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/hmac.h"
#include "transport/tcp/buffered_socket.h"
#include "transport/tcp/byte_channel.h"
#include "transport/tcp/tls_session.h"

namespace slipstream {

/// Bytes that TLS 1.3 protects with a secret of this connection. The secret alone does not open
/// recorded bytes, because ephemeral keys are exchanged as well.
///
/// Records are encrypted into a buffer, which one system call sends. Received records are decrypted
/// in OpenSSL's buffer and copied once, to the memory that receive() is given. close_notify is
/// neither sent nor needed, since the engine never takes the end of a connection for the end of its
/// data.
class TlsChannel final : public ByteChannel {
 public:
  enum class Progress : std::uint8_t { kPending, kDone, kFailed };
  /// Records that are sent with one key. AES-GCM allows 2^24.5 (RFC 8446, section 5.5).
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 22U;

  /// `socket` must stay open as long as the channel is used.
  TlsChannel(int socket, TlsEnd end, const Digest& secret,
             std::uint64_t records_per_key = kRecordsPerKey);
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  /// Continues the handshake of TLS as far as the socket allows. After kPending, call it again when
  /// the socket is readable or writable. Bytes can be sent and received after kDone.
  Progress open();
  /// The reason of a failed open(), as the end of a sentence whose subject is the peer.
  [[nodiscard]] const std::string& open_failure() const noexcept { return open_failure_; }

  Received receive(std::span<const iovec> parts) override;
  [[nodiscard]] bool ended() const override { return socket_.ended(); }
  [[nodiscard]] const std::string& receive_failure() const override;
  /// Holds at most 64 KB, and what TLS adds to them.
  std::size_t send(std::span<const iovec> parts) override;
  [[nodiscard]] bool holds_bytes() const override { return socket_.held() > 0; }
  void flush() override { socket_.flush(); }
  [[nodiscard]] const std::string& send_failure() const override;

 private:
  Progress stop(std::string reason);
  /// Decrypts up to the size of `into`. Returns fewer bytes if no more have arrived.
  std::size_t decrypt(std::span<std::byte> into);
  /// Encrypts into the socket's buffer. Returns false if that fails.
  bool encrypt(std::span<const std::byte> bytes);
  void renew_key();

  const Digest secret_;
  const std::uint64_t records_per_key_;
  BufferedSocket socket_;
  TlsSession session_;
  std::uint64_t records_ = 0;  // sent with the present key
  std::string open_failure_;
  std::string tls_receive_failure_;  // not of the socket
  std::string tls_send_failure_;
};

}  // namespace slipstream
