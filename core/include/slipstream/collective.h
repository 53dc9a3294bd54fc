#pragma once

#include <cstdint>
#include <string_view>

namespace slipstream {

enum class Collective : std::uint8_t {
  kAllreduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive,
};

enum class Algorithm : std::uint8_t {
  kAuto,
  kRing,
  kDimensions,
  kRecursiveDoubling,
  kBinomial,
  kDirect,
  kEncoded
};

/// "allreduce", "reduce_scatter", ...: the word used in messages, tables and the command line.
std::string_view name_of(Collective collective);
/// "auto", "ring", "dimensions", "recursive_doubling", "binomial", "direct", "encoded".
std::string_view name_of(Algorithm algorithm);
/// The inverse of name_of(Algorithm). Throws Error(kConfig) that lists the names.
Algorithm algorithm_named(std::string_view name);

/// What a tuner chooses for a group's allreduces, by their bytes.
struct AllreduceTuning {
  std::uint64_t direct_bytes = 0;    ///< up to so many: direct exchange
  std::uint64_t doubling_bytes = 0;  ///< up to so many: recursive doubling; above, what it was
  std::uint32_t segment_bytes = 0;   ///< 0: the engine's
};

}  // namespace slipstream
