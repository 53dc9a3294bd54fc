#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/hmac.h"
#include "transport/tcp/buffered_socket.h"

struct ssl_st;

namespace slipstream {

enum class TlsEnd : std::uint8_t { kClient, kServer };

struct TlsSessionDeleter {
  void operator()(ssl_st* session) const noexcept;
};
using TlsSession = std::unique_ptr<ssl_st, TlsSessionDeleter>;

/// Makes a session of TLS 1.3 (RFC 8446) in which one thing can be negotiated only: an external
/// pre-shared key, `secret`, with an exchange of ephemeral keys (psk_dhe_ke, X25519), and
/// TLS_AES_128_GCM_SHA256. There are no certificates, no tickets and no early data. `secret` and
/// `socket` must outlive the session. Throws Error(kInternal) if OpenSSL fails.
TlsSession make_tls_session(TlsEnd end, const Digest& secret, BufferedSocket& socket);

/// Whether the two ends have proved to each other that they have the secret.
bool is_proved(ssl_st& session);

/// Removes OpenSSL's errors of this thread, and returns the first as text; "" if there is none.
std::string take_tls_error();

}  // namespace slipstream
