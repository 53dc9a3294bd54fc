#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace slipstream {

using Nonce = std::array<std::byte, 32>;
using Digest = std::array<std::byte, 32>;

/// HMAC-SHA256 (RFC 2104) of the concatenation of `parts`.
Digest hmac_sha256(std::span<const std::byte> key,
                   std::initializer_list<std::span<const std::byte>> parts);

/// 32 bytes from the cryptographic generator. Throws Error(kInternal) if it fails.
Nonce random_nonce();

/// Compares two digests in a time that does not depend on where they differ.
bool equal_in_constant_time(const Digest& left, const Digest& right) noexcept;

}  // namespace slipstream
