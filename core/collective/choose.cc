#include "collective/choose.h"

#include <array>
#include <limits>
#include <numeric>

#include "collective/algorithms.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::uint64_t kAnyBytes = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kAnySize = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kKiB = 1024;
constexpr bool kInDimensions = true;

using enum Collective;
constexpr std::array kRules = {
    Rule{kAllreduce, 8 * kKiB, 8, Algorithm::kDirect},
    Rule{kAllreduce, 32 * kKiB, kAnySize, Algorithm::kRecursiveDoubling},
    Rule{kAllreduce, kAnyBytes, kAnySize, Algorithm::kDimensions, kInDimensions},
    Rule{kAllreduce, kAnyBytes, kAnySize, Algorithm::kRing},
    Rule{kReduceScatter, 64 * kKiB, 8, Algorithm::kDirect},
    Rule{kReduceScatter, kAnyBytes, kAnySize, Algorithm::kRing},
    Rule{kAllGather, 64 * kKiB, 16, Algorithm::kDirect},
    Rule{kAllGather, kAnyBytes, kAnySize, Algorithm::kRing},
    Rule{kBroadcast, 8 * kKiB, 4, Algorithm::kDirect},
    Rule{kBroadcast, 64 * kKiB, kAnySize, Algorithm::kBinomial},
    Rule{kBroadcast, kAnyBytes, kAnySize, Algorithm::kRing},
    Rule{kReduce, 64 * kKiB, kAnySize, Algorithm::kBinomial},
    Rule{kReduce, kAnyBytes, kAnySize, Algorithm::kRing},
    Rule{kGather, kAnyBytes, kAnySize, Algorithm::kDirect},
    Rule{kScatter, kAnyBytes, kAnySize, Algorithm::kDirect},
    Rule{kAllToAll, kAnyBytes, kAnySize, Algorithm::kDirect},
    Rule{kBarrier, kAnyBytes, 8, Algorithm::kDirect},
    Rule{kBarrier, kAnyBytes, kAnySize, Algorithm::kRecursiveDoubling},
    Rule{kSend, kAnyBytes, kAnySize, Algorithm::kDirect},
    Rule{kReceive, kAnyBytes, kAnySize, Algorithm::kDirect},
};

struct Implementation {
  Collective collective;
  Algorithm algorithm;
  Plan (*make)(const Shape&);
};

constexpr std::array kImplementations = {
    Implementation{kAllreduce, Algorithm::kRing, ring::allreduce},
    Implementation{kAllreduce, Algorithm::kDimensions, dimensions::allreduce},
    Implementation{kAllreduce, Algorithm::kEncoded, encoded::allreduce},
    Implementation{kAllreduce, Algorithm::kRecursiveDoubling, recursive_doubling::allreduce},
    Implementation{kAllreduce, Algorithm::kDirect, direct::allreduce},
    Implementation{kReduceScatter, Algorithm::kRing, ring::reduce_scatter},
    Implementation{kReduceScatter, Algorithm::kDirect, direct::reduce_scatter},
    Implementation{kAllGather, Algorithm::kRing, ring::all_gather},
    Implementation{kAllGather, Algorithm::kDirect, direct::all_gather},
    Implementation{kBroadcast, Algorithm::kRing, ring::broadcast},
    Implementation{kBroadcast, Algorithm::kBinomial, binomial::broadcast},
    Implementation{kBroadcast, Algorithm::kDirect, direct::broadcast},
    Implementation{kReduce, Algorithm::kRing, ring::reduce},
    Implementation{kReduce, Algorithm::kBinomial, binomial::reduce},
    Implementation{kGather, Algorithm::kDirect, direct::gather},
    Implementation{kScatter, Algorithm::kDirect, direct::scatter},
    Implementation{kAllToAll, Algorithm::kDirect, direct::all_to_all},
    Implementation{kBarrier, Algorithm::kDirect, direct::barrier},
    Implementation{kBarrier, Algorithm::kRecursiveDoubling, recursive_doubling::barrier},
    Implementation{kSend, Algorithm::kDirect, direct::point_to_point},
    Implementation{kReceive, Algorithm::kDirect, direct::point_to_point},
};

const Implementation* find(Collective collective, Algorithm algorithm) {
  for (const Implementation& each : kImplementations) {
    if (each.collective == collective && each.algorithm == algorithm) return &each;
  }
  return nullptr;
}

/// The size that all ranks see alike: blocks that differ by rank count with their sum.
std::uint64_t bytes_for_rules(const Shape& shape) {
  switch (shape.collective) {
    case kReduceScatter:
      return shape.bytes() * shape.size;
    case kAllGather:
      return std::accumulate(shape.receive_counts.begin(), shape.receive_counts.end(),
                             std::uint64_t{0}) *
             shape.element_bytes;
    default:
      return shape.bytes();
  }
}

/// A single rank sends nothing: the result is the input.
Plan make_local_plan(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  std::uint64_t bytes = shape.bytes();
  if (!shape.receive_counts.empty()) bytes = shape.receive_counts[0] * shape.element_bytes;
  plan.copy({Memory::kOutput, 0, bytes}, {Memory::kInput, 0, bytes});
  return std::move(plan).build();
}

}  // namespace

std::span<const Rule> rules() { return kRules; }

Algorithm choose(const Shape& shape, Algorithm forced) {
  if (shape.codec != Codec::kNone) return Algorithm::kEncoded;
  if (forced != Algorithm::kAuto && find(shape.collective, forced) != nullptr) return forced;
  const std::uint64_t bytes = bytes_for_rules(shape);
  const bool in_dimensions = shape.layout->dimensions.size() > 1;
  for (const Rule& rule : kRules) {
    if (rule.collective == shape.collective && bytes <= rule.max_bytes &&
        shape.size <= rule.max_size && (in_dimensions || !rule.in_dimensions)) {
      return rule.algorithm;
    }
  }
  fail(ErrorKind::kInternal, "no rule chooses an algorithm for ", name_of(shape.collective), " of ",
       bytes, " bytes among ", shape.size, " ranks; please report it");
}

Plan make_plan(const Shape& shape, Algorithm algorithm) {
  if (shape.size == 1) return make_local_plan(shape);
  const Implementation* implementation = find(shape.collective, algorithm);
  if (implementation == nullptr) {
    fail(ErrorKind::kUnsupported, name_of(shape.collective), " has no algorithm '",
         name_of(algorithm),
         "'; choose auto, or one that `slipstream doctor --algorithms` lists for it");
  }
  return implementation->make(shape);
}

std::string rules_as_text() {
  std::ostringstream out;
  for (const Rule& rule : kRules) {
    out << name_of(rule.collective) << '\t' << name_of(rule.algorithm) << '\t';
    out << (rule.max_bytes == kAnyBytes ? "any size" : concat("<= ", rule.max_bytes, " bytes"));
    out << '\t' << (rule.max_size == kAnySize ? "any" : concat("<= ", rule.max_size)) << " ranks"
        << (rule.in_dimensions ? " in dimensions\n" : "\n");
  }
  return out.str();
}

}  // namespace slipstream
