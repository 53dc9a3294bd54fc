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

/// "allreduce", "reduce_scatter", ...: the names in messages, in tables and on the command line.
std::string_view name_of(Collective collective);
/// "auto", "ring", "dimensions", "recursive_doubling", "binomial", "direct", "encoded".
std::string_view name_of(Algorithm algorithm);
/// The inverse of name_of(Algorithm). Throws Error(kConfig) with a list of the names.
Algorithm algorithm_named(std::string_view name);

/// The sizes at which a group's allreduces change their algorithm, as chosen by a tuner.
struct AllreduceTuning {
  std::uint64_t direct_bytes = 0;  ///< up to this size: direct exchange
  /// Up to this size: recursive doubling; above: the untuned choice.
  std::uint64_t doubling_bytes = 0;
  std::uint32_t segment_bytes = 0;  ///< 0: the engine's segment size
};

}  // namespace slipstream
