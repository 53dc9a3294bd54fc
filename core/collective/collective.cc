#include "slipstream/collective.h"

#include <array>

#include "slipstream/error.h"

namespace slipstream {
namespace {
constexpr std::array kCollectives = {"allreduce", "reduce_scatter", "all_gather", "broadcast",
                                     "reduce",    "gather",         "scatter",    "all_to_all",
                                     "barrier",   "send",           "recv"};
constexpr std::array kAlgorithms = {"auto",     "ring",   "dimensions", "recursive_doubling",
                                    "binomial", "direct", "encoded"};
}  // namespace

std::string_view name_of(Collective collective) {
  return kCollectives.at(static_cast<std::size_t>(collective));
}

std::string_view name_of(Algorithm algorithm) {
  return kAlgorithms.at(static_cast<std::size_t>(algorithm));
}

Algorithm algorithm_named(std::string_view name) {
  for (std::size_t i = 0; i < kAlgorithms.size(); ++i) {
    if (name == kAlgorithms.at(i)) return static_cast<Algorithm>(i);
  }
  fail(ErrorKind::kConfig, "the algorithm is '", name,
       "'; allowed: auto, ring, dimensions, recursive_doubling, binomial, direct");
}

}  // namespace slipstream
