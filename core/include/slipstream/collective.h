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

}  // namespace slipstream
