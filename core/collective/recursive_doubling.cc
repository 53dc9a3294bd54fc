#include <bit>

#include "collective/algorithms.h"

namespace slipstream::recursive_doubling {
namespace {

constexpr auto kNone = PlanBuilder::kNone;
constexpr std::uint32_t kFold = 1000,
                        kUnfold = 1001;  // tags that differ from those of the exchanges

/// The ranks that take part in the exchanges: every even one of the first 2*extra ranks, which
/// represents itself and its odd neighbour, and all later ranks. They are numbered in the order of
/// the ranks.
struct Cube {
  std::uint32_t size, extra;
  explicit Cube(std::uint32_t ranks) : size(std::bit_floor(ranks)), extra(ranks - size) {}
  [[nodiscard]] bool folds(std::uint32_t rank) const { return rank < 2 * extra; }
  [[nodiscard]] std::uint32_t index(std::uint32_t rank) const {
    return folds(rank) ? rank / 2 : rank - extra;
  }
  [[nodiscard]] std::uint32_t rank(std::uint32_t index) const {
    return index < extra ? 2 * index : index + extra;
  }
};

Plan exchange(const Shape& shape, PlanBuilder plan) {
  const Cube cube(shape.size);
  const Region input{Memory::kInput, 0, shape.bytes()};
  const Region output{Memory::kOutput, 0, shape.bytes()};
  if (cube.folds(shape.rank) && shape.rank % 2 == 1) {
    plan.send(shape.rank - 1, kFold, input);
    plan.receive(shape.rank - 1, kUnfold, output);
    return std::move(plan).build();
  }
  Region sum = input;
  std::uint32_t last = kNone;
  if (cube.folds(shape.rank)) {
    const Region theirs = plan.scratch(shape.bytes());
    last = plan.reduce(output, sum, theirs, {plan.receive(shape.rank + 1, kFold, theirs)});
    sum = output;
  }
  const std::uint32_t index = cube.index(shape.rank);
  for (std::uint32_t bit = 1, tag = 0; bit < cube.size; bit *= 2, ++tag) {
    const std::uint32_t partner = cube.rank(index ^ bit);
    const Region theirs = plan.scratch(shape.bytes());
    const std::uint32_t sent = plan.send(partner, tag, sum, {last});
    const std::uint32_t received = plan.receive(partner, tag, theirs);
    const bool lower = (index & bit) == 0;
    last = plan.reduce(output, lower ? sum : theirs, lower ? theirs : sum, {sent, received, last},
                       bit * 2 == cube.size);
    sum = output;
  }
  if (cube.folds(shape.rank)) plan.send(shape.rank + 1, kUnfold, output, {last});
  return std::move(plan).build();
}

}  // namespace

Plan allreduce(const Shape& shape) {
  return exchange(shape, PlanBuilder(Algorithm::kRecursiveDoubling));
}

Plan barrier(const Shape& shape) {
  return exchange(shape, PlanBuilder(Algorithm::kRecursiveDoubling, /*keeps_empty=*/true));
}

}  // namespace slipstream::recursive_doubling
