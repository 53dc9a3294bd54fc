#include "transport/tcp/tls_session.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr const char* kCipherSuite = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherSuiteId{0x13, 0x01};
constexpr const char* kGroup = "X25519";
constexpr std::array<unsigned char, 10> kPskIdentity{'s', 'l', 'i', 'p', 's',
                                                     't', 'r', 'e', 'a', 'm'};
/// OpenSSL reads so many bytes at once. It moves the rest of them for each record, so a larger
/// buffer costs more copying than the system calls that it saves.
constexpr std::size_t kReadBytes = std::size_t{34} * 1024;

[[noreturn]] void fail_tls(const char* call) {
  fail(ErrorKind::kInternal, call, " of OpenSSL failed: ", take_tls_error());
}

const Digest& secret_of(const SSL* session) {
  return *static_cast<const Digest*>(SSL_get_app_data(session));
}

/// The pre-shared key in the form that OpenSSL takes, or nullptr if it has no memory.
SSL_SESSION* make_key(SSL* session) {
  SSL_SESSION* const key = ::SSL_SESSION_new();
  const SSL_CIPHER* const cipher = ::SSL_CIPHER_find(session, kCipherSuiteId.data());
  const Digest& secret = secret_of(session);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(secret.data());
  if (key != nullptr && cipher != nullptr &&
      ::SSL_SESSION_set1_master_key(key, bytes, secret.size()) == 1 &&
      ::SSL_SESSION_set_cipher(key, cipher) == 1 &&
      ::SSL_SESSION_set_protocol_version(key, TLS1_3_VERSION) == 1) {
    return key;
  }
  ::SSL_SESSION_free(key);
  return nullptr;
}

int use_key(SSL* session, const EVP_MD* /*digest*/, const unsigned char** id, std::size_t* id_bytes,
            SSL_SESSION** key) {
  *id = kPskIdentity.data();
  *id_bytes = kPskIdentity.size();
  *key = make_key(session);
  return *key != nullptr ? 1 : 0;
}

int find_key(SSL* session, const unsigned char* id, std::size_t id_bytes, SSL_SESSION** key) {
  const bool known =
      id_bytes == kPskIdentity.size() && std::memcmp(id, kPskIdentity.data(), id_bytes) == 0;
  *key = known ? make_key(session) : nullptr;
  return !known || *key != nullptr ? 1 : 0;
}

SSL_CTX* make_context() {
  // Without the system's configuration, which may ask for other versions and suites.
  ::OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  SSL_CTX* const context = ::SSL_CTX_new(::TLS_method());
  if (context == nullptr) fail_tls("SSL_CTX_new");
  if (::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      ::SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      ::SSL_CTX_set_ciphersuites(context, kCipherSuite) != 1 ||
      ::SSL_CTX_set1_groups_list(context, kGroup) != 1 ||
      ::SSL_CTX_set_num_tickets(context, 0) != 1) {
    fail_tls("the configuration of TLS");
  }
  ::SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  ::SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
  ::SSL_CTX_set_read_ahead(context, 1);
  ::SSL_CTX_set_default_read_buffer_len(context, kReadBytes);
  ::SSL_CTX_set_psk_use_session_callback(context, use_key);
  ::SSL_CTX_set_psk_find_session_callback(context, find_key);
  return context;
}

}  // namespace

void TlsSessionDeleter::operator()(ssl_st* session) const noexcept { ::SSL_free(session); }

TlsSession make_tls_session(TlsEnd end, const Digest& secret, BufferedSocket& socket) {
  static SSL_CTX* const context = make_context();  // constant; never freed, as threads may use it
  TlsSession session(::SSL_new(context));
  if (session == nullptr) fail_tls("SSL_new");
  SSL_set_app_data(session.get(), const_cast<Digest*>(&secret));
  BIO* const bio = make_bio(socket);
  ::SSL_set_bio(session.get(), bio, bio);
  if (end == TlsEnd::kClient) {
    ::SSL_set_connect_state(session.get());
    // A server that offers a certificate in place of the key is refused: nobody is trusted to sign.
    ::SSL_set_verify(session.get(), SSL_VERIFY_PEER, nullptr);
  } else {
    ::SSL_set_accept_state(session.get());
  }
  return session;
}

bool is_proved(ssl_st& session) { return ::SSL_session_reused(&session) == 1; }

std::string take_tls_error() {
  const unsigned long first = ::ERR_get_error();
  ::ERR_clear_error();
  if (first == 0) return "";
  const char* const text = ::ERR_reason_error_string(first);
  return text != nullptr ? text : concat("error ", first);
}

}  // namespace slipstream
