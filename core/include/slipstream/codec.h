#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

/// The encoding of float32 values on the wire between hosts.
enum class Codec : std::uint8_t {
  kNone,  ///< unchanged: exact
  kFp16,  ///< IEEE binary16, with one power of two per block as scale
  kBf16,  ///< the upper half of a float32
  kInt8,  ///< multiples of 1/127 of the block's largest magnitude
};
inline constexpr std::size_t kNumCodecs = 4;

/// The layout of a codec on the wire: blocks with a header and elements. The ratio must be fixed:
/// plans, segments and credits are computed from element counts alone, before any value is known,
/// so a codec whose size depends on the data is not possible here.
struct CodecTraits {
  std::string_view name;
  std::size_t block;          ///< elements encoded together
  std::size_t header_bytes;   ///< of each block, for its scale
  std::size_t element_bytes;  ///< of each element
};

inline constexpr std::array<CodecTraits, kNumCodecs> kCodecTraits{{
    {"none", 1, 0, 4},
    {"fp16", 2048, 4, 2},
    {"bf16", 1, 0, 2},
    {"int8", 128, 4, 1},
}};

/// The properties of `codec`, which do not depend on the data.
constexpr const CodecTraits& traits_of(Codec codec) {
  return kCodecTraits[static_cast<std::size_t>(codec)];
}

/// The name that the Python API and the settings use: "none", "fp16", "bf16" or "int8".
constexpr std::string_view name_of(Codec codec) { return traits_of(codec).name; }

/// The names of all codecs, for messages.
inline std::string codec_names() {
  std::string names;
  for (const CodecTraits& traits : kCodecTraits) {
    names.append(names.empty() ? "" : ", ").append(traits.name);
  }
  return names;
}

/// The codec with this name, or nothing.
constexpr std::optional<Codec> parse_codec(std::string_view name) {
  for (std::size_t i = 0; i < kNumCodecs; ++i) {
    if (kCodecTraits[i].name == name) return static_cast<Codec>(i);
  }
  return std::nullopt;
}

/// The number of elements that are encoded together. A range may be encoded in pieces that begin at
/// multiples of this number: the concatenation of the pieces is the encoding of the whole range.
constexpr std::size_t codec_block(Codec codec) { return traits_of(codec).block; }

/// Exact size of `count` encoded elements; the last block may be short.
constexpr std::size_t encoded_bytes(Codec codec, std::size_t count) {
  const CodecTraits& traits = traits_of(codec);
  const std::size_t blocks = count / traits.block + (count % traits.block != 0 ? 1 : 0);
  return blocks * traits.header_bytes + count * traits.element_bytes;
}

}  // namespace slipstream
