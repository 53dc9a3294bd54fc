#include <bit>

#include "collective/algorithms.h"

// Ranks are counted from the root. The number of a rank's parent has the rank's lowest set bit
// cleared; the numbers of its children have one lower bit added.
namespace slipstream::binomial {
namespace {

struct Tree {
  std::uint32_t size, root, index;
  explicit Tree(const Shape& shape)
      : size(shape.size),
        root(shape.root),
        index((shape.rank + shape.size - shape.root) % shape.size) {}
  [[nodiscard]] std::uint32_t rank(std::uint32_t at) const { return (at + root) % size; }
  /// The bit that leads to the parent; for the root, one above all bits in use.
  [[nodiscard]] std::uint32_t low_bit() const {
    return index == 0 ? std::bit_ceil(size) : index & (~index + 1);
  }
};

}  // namespace

Plan broadcast(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBinomial);
  const Tree tree(shape);
  const Region all{Memory::kOutput, 0, shape.bytes()};
  std::uint32_t received = PlanBuilder::kNone;
  if (tree.index != 0) received = plan.receive(tree.rank(tree.index - tree.low_bit()), 0, all);
  for (std::uint32_t bit = tree.low_bit() / 2; bit > 0; bit /= 2) {
    if (tree.index + bit < tree.size) {
      plan.send(tree.rank(tree.index + bit), 0, all, {received});
    }
  }
  return std::move(plan).build();
}

Plan reduce(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBinomial);
  const Tree tree(shape);
  Region sum{Memory::kInput, 0, shape.bytes()};
  const Region result =
      tree.index == 0 ? Region{Memory::kOutput, 0, shape.bytes()} : plan.scratch(shape.bytes());
  std::uint32_t last = PlanBuilder::kNone;
  for (std::uint32_t bit = 1; bit < tree.low_bit(); bit *= 2) {
    if (tree.index + bit >= tree.size) continue;
    const Region theirs = plan.scratch(shape.bytes());
    const std::uint32_t received = plan.receive(tree.rank(tree.index + bit), 0, theirs);
    const bool complete = tree.index == 0 && bit * 2 >= tree.size;
    last = plan.reduce(result, sum, theirs, {received, last}, complete);
    sum = result;
  }
  if (tree.index != 0) plan.send(tree.rank(tree.index - tree.low_bit()), 0, sum, {last});
  return std::move(plan).build();
}

}  // namespace slipstream::binomial
