#include "transport/tcp/tls_channel.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;  // 16 KB
/// Bytes that are encrypted before they are sent, by one system call.
constexpr std::size_t kBatchBytes = 4 * kRecordBytes;
/// The messages of TLS's handshake have less than 1 KB. More is only read if frames follow at once.
constexpr std::size_t kMostHandshakeBytes = std::size_t{16} * 1024;

}  // namespace

TlsChannel::TlsChannel(int socket, TlsEnd end, const Digest& secret, std::uint64_t records_per_key)
    : secret_(secret),
      records_per_key_(records_per_key),
      socket_(socket),
      session_(make_tls_session(end, secret_, socket_)) {}

TlsChannel::Progress TlsChannel::open() {
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(session_.get());
  const int error = ::SSL_get_error(session_.get(), result);
  const std::string reason = result == 1 ? "" : take_tls_error();
  socket_.flush();  // also the alert that tells the peer of a failure
  if (result == 1) {
    if (!is_proved(*session_)) return stop("did not prove the secret of the connection by TLS");
    if (socket_.held() > 0 && socket_.write_failure().empty()) return Progress::kPending;
    return socket_.write_failure().empty() ? Progress::kDone : stop(socket_.write_failure());
  }
  if (error != SSL_ERROR_WANT_READ) {
    return stop(
        concat("sent what TLS does not accept (", reason.empty() ? "no reason" : reason, ")"));
  }
  if (socket_.ended()) return stop("closed the connection during the handshake of TLS");
  if (!socket_.read_failure().empty()) {
    return stop(concat("broke off during the handshake of TLS: ", socket_.read_failure()));
  }
  if (socket_.received() > kMostHandshakeBytes) {
    return stop(concat("sent ", socket_.received(),
                       " bytes and did not finish the handshake of TLS; allowed: at most ",
                       kMostHandshakeBytes));
  }
  return Progress::kPending;
}

TlsChannel::Progress TlsChannel::stop(std::string reason) {
  open_failure_ = std::move(reason);
  return Progress::kFailed;
}

ByteChannel::Received TlsChannel::receive(std::span<const iovec> parts) {
  Received received;
  for (const iovec& part : parts) {
    const std::size_t count = decrypt({static_cast<std::byte*>(part.iov_base), part.iov_len});
    received.bytes += count;
    if (count < part.iov_len) {
      // After the end, or a failure, another call reads nothing and shows it.
      received.drained = !ended() && receive_failure().empty();
      break;
    }
  }
  return received;
}

std::size_t TlsChannel::decrypt(std::span<std::byte> into) {
  std::size_t filled = 0;
  while (filled < into.size() && tls_receive_failure_.empty()) {
    ::ERR_clear_error();
    std::size_t count = 0;
    const auto rest = into.subspan(filled);
    const int result = ::SSL_read_ex(session_.get(), rest.data(), rest.size(), &count);
    filled += count;
    if (result == 1) continue;
    const int error = ::SSL_get_error(session_.get(), result);
    if (error == SSL_ERROR_WANT_READ) break;
    tls_receive_failure_ = error == SSL_ERROR_ZERO_RETURN
                               ? "the peer ended TLS"
                               : concat("TLS failed: ", take_tls_error());
  }
  return filled;
}

const std::string& TlsChannel::receive_failure() const {
  return tls_receive_failure_.empty() ? socket_.read_failure() : tls_receive_failure_;
}

std::size_t TlsChannel::send(std::span<const iovec> parts) {
  std::size_t accepted = 0;
  std::size_t batch = 0;  // bytes encrypted since the last flush()
  flush();
  for (const iovec& part : parts) {
    std::span<const std::byte> bytes(static_cast<const std::byte*>(part.iov_base), part.iov_len);
    while (!bytes.empty()) {
      if (holds_bytes() && batch == 0) return accepted;  // the socket is full
      const auto next = bytes.first(std::min(bytes.size(), kBatchBytes - batch));
      if (!encrypt(next)) return accepted;
      accepted += next.size();
      batch += next.size();
      bytes = bytes.subspan(next.size());
      if (batch < kBatchBytes) continue;
      flush();
      batch = 0;
    }
  }
  flush();
  return accepted;
}

bool TlsChannel::encrypt(std::span<const std::byte> bytes) {
  if (!send_failure().empty()) return false;
  ::ERR_clear_error();
  std::size_t count = 0;
  if (::SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &count) != 1) {
    tls_send_failure_ = concat("TLS failed: ", take_tls_error());
    return false;
  }
  SLIPSTREAM_ASSERT(count == bytes.size(), count, " of ", bytes.size());
  records_ += (bytes.size() + kRecordBytes - 1) / kRecordBytes;
  if (records_ >= records_per_key_) renew_key();
  return true;
}

/// The next record begins with the message that announces the new key.
void TlsChannel::renew_key() {
  records_ = 0;
  if (::SSL_key_update(session_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
    tls_send_failure_ = concat("TLS failed: ", take_tls_error());
  }
}

const std::string& TlsChannel::send_failure() const {
  return tls_send_failure_.empty() ? socket_.write_failure() : tls_send_failure_;
}

}  // namespace slipstream
