#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "codec/wire.h"

// The codecs exist a second time, for GPUs (src/slipstream/torch/cuda). Both sides encode the same
// values, made from integers alone as in tools/gpu_check/codecs/values.py, and have the same
// digests.
namespace slipstream {
namespace {

struct Digest {
  std::string_view codec;
  std::string_view kind;
  std::uint32_t crc32;  ///< of what digest_of() encodes and decodes
};

constexpr Digest kDigests[] = {
#include "test/wire_digests.inc"
};

constexpr std::array kCounts{1, 127, 128, 129, 2047, 2048, 2049, 5000};
constexpr std::uint32_t kSign = 0x80000000u;
constexpr std::array kSpecial{0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFC00001u, 0x7F800001u,
                              0x00000000u, 0x80000000u, 0x7F7FFFFFu, 0xFF7FFFFFu, 0x00800000u,
                              0x00000001u, 0x80000001u, 0x3F800000u};

std::uint32_t hashed(std::uint32_t index, std::uint32_t seed) {
  std::uint32_t word = index * 0x9E3779B9u + seed * 0x85EBCA6Bu;
  word ^= word >> 16;
  word *= 0x85EBCA6Bu;
  word ^= word >> 13;
  word *= 0xC2B2AE35u;
  return word ^ (word >> 16);
}

std::uint32_t with_exponents(std::uint32_t word, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t exponent = (word >> 23 & 0xFF) % count + first;
  return (word & 0x807FFFFFu) | exponent << 23;
}

std::uint32_t gradients(std::uint32_t word) { return with_exponents(word, 100, 21); }

std::uint32_t wide(std::uint32_t word) {
  return with_exponents((word & 1) != 0 ? word : word & 0xFFF00000u, 96, 32);
}

std::uint32_t halves(std::uint32_t word) {
  const bool is_of_fp16 = (word & 1) != 0;
  return with_exponents(
      is_of_fp16 ? (word & 0xFFFFE000u) | 0x1000u : (word & 0xFFFF0000u) | 0x8000u, 110, 16);
}

std::uint32_t int8_halves(std::uint32_t word, std::size_t index) {
  const float number = (static_cast<float>(word % 255) - 127.0F) / 2.0F;
  return std::bit_cast<std::uint32_t>(index % 128 == 0 ? 127.0F : number);
}

std::uint32_t special(std::uint32_t word) {
  return word % 64 == 0 ? kSpecial[(word >> 6) % kSpecial.size()] : gradients(word);
}

std::uint32_t bits_of(std::string_view kind, std::uint32_t word, std::size_t index) {
  if (kind == "bits") return word;
  if (kind == "gradients") return gradients(word);
  if (kind == "wide") return wide(word);
  if (kind == "tiny") return with_exponents(word, 0, 40);
  if (kind == "huge") return with_exponents(word, 252, 3);
  if (kind == "halves") return halves(word);
  if (kind == "int8 halves") return int8_halves(word, index);
  if (kind == "special") return special(word);
  if (kind == "zeros") return word & kSign;
  if (kind == "ends") return (word & kSign) | (0x7F7FFFFFu - word % 0x20000u);
  ADD_FAILURE() << "no kind " << kind;
  return 0;
}

std::vector<float> values_of(std::string_view kind, std::size_t count, std::uint32_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t word = hashed(static_cast<std::uint32_t>(i), seed);
    // Copied as bytes, because a register of floats may make a signalling NaN quiet.
    const std::uint32_t bits = bits_of(kind, word, i);
    std::memcpy(&values[i], &bits, sizeof(bits));
  }
  return values;
}

/// The CRC-32 of zlib and PNG (ISO 3309), bit by bit.
class Crc32 {
 public:
  template <typename T>
  void add(const std::vector<T>& values) {
    std::vector<std::uint8_t> bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    for (const std::uint8_t byte : bytes) {
      state_ ^= byte;
      for (int i = 0; i < 8; ++i) state_ = state_ >> 1 ^ ((state_ & 1) != 0 ? 0xEDB88320u : 0u);
    }
  }
  [[nodiscard]] std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = 0xFFFFFFFFu;
};

/// The digest of values encoded, decoded, and encoded with a residual, and of that residual.
std::uint32_t digest_of(Codec codec, std::string_view kind) {
  Crc32 crc;
  for (const std::size_t count : kCounts) {
    const std::vector<float> values = values_of(kind, count, 0);
    std::vector<float> residual = values_of(kind, count, 1);
    std::vector<std::byte> bytes(encoded_bytes(codec, count));
    std::vector<float> decoded(count);
    encode(codec, values.data(), count, bytes.data());
    crc.add(bytes);
    decode(codec, bytes.data(), count, decoded.data());
    crc.add(decoded);
    encode_with_residual(codec, values.data(), residual.data(), count, bytes.data());
    crc.add(bytes);
    crc.add(residual);
  }
  return crc.value();
}

TEST(WireDigests, TheCodecsHaveTheBitsThatKernelsForGpusAreTestedAgainst) {
  for (const Digest& digest : kDigests) {
    const auto codec = parse_codec(digest.codec);
    ASSERT_TRUE(codec.has_value()) << digest.codec;
    EXPECT_EQ(digest_of(*codec, digest.kind), digest.crc32)
        << std::hex << "{\"" << digest.codec << "\", \"" << digest.kind << "\", 0x"
        << digest_of(*codec, digest.kind) << "},";
  }
}

}  // namespace
}  // namespace slipstream
