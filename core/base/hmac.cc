#include "base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <vector>

#include "slipstream/error.h"

namespace slipstream {
namespace {

unsigned char* as_chars(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

[[noreturn]] void fail_openssl(const char* call) {
  fail(ErrorKind::kInternal, call,
       " of OpenSSL failed: ", ::ERR_error_string(::ERR_get_error(), nullptr));
}

}  // namespace

Digest hmac_sha256(std::span<const std::byte> key,
                   std::initializer_list<std::span<const std::byte>> parts) {
  std::vector<std::byte> message;
  for (const auto part : parts) message.insert(message.end(), part.begin(), part.end());
  Digest digest{};
  unsigned int length = 0;
  if (::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), as_chars(message.data()),
             message.size(), as_chars(digest.data()), &length) == nullptr ||
      length != digest.size()) {
    fail_openssl("HMAC");
  }
  return digest;
}

Nonce random_nonce() {
  Nonce nonce{};
  if (::RAND_bytes(as_chars(nonce.data()), static_cast<int>(nonce.size())) != 1) {
    fail_openssl("RAND_bytes");
  }
  return nonce;
}

bool equal_in_constant_time(const Digest& left, const Digest& right) noexcept {
  return ::CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace slipstream
