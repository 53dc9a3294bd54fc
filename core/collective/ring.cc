#include <vector>

#include "collective/algorithms.h"

namespace slipstream::ring {
namespace {

constexpr auto kNone = PlanBuilder::kNone;

/// The reduce-scatter half. `own` are this rank's contributions; `partial` stores the partial
/// blocks that pass by and, in block `rank`, the result. Returns the step that completes the
/// result.
///
/// In step s, rank r sends block r-1-s to its successor, and receives block r-2-s, to which it adds
/// its own. So block b is summed in the order b+1, b+2, ..., b, which is the same in every run.
std::uint32_t reduce_scatter(PlanBuilder& plan, const Shape& shape, const Blocks& own,
                             const std::vector<Region>& partial) {
  std::uint32_t last = kNone;
  for (std::uint32_t s = 0; s + 1 < shape.size; ++s) {
    const std::uint32_t outgoing = shape.previous(1 + s);
    const std::uint32_t incoming = shape.previous(2 + s);
    plan.send(shape.next(), s, s == 0 ? own[outgoing] : partial[outgoing], {last});
    const bool complete = s + 2 == shape.size;
    last = plan.receive_reduce(shape.previous(), s, partial[incoming], own[incoming], complete);
  }
  return last;
}

/// The all-gather half: in step s, rank r passes on block r-s. `mine` is the region of this rank's
/// own block.
void all_gather(PlanBuilder& plan, const Shape& shape, const Region& mine, const Blocks& output,
                std::uint32_t first_tag, std::uint32_t ready) {
  std::uint32_t last = ready;
  for (std::uint32_t s = 0; s + 1 < shape.size; ++s) {
    const std::uint32_t tag = first_tag + s;
    plan.send(shape.next(), tag, s == 0 ? mine : output[shape.previous(s)], {last});
    last = plan.receive(shape.previous(), tag, output[shape.previous(1 + s)]);
  }
}

std::vector<Region> regions(const Blocks& blocks, std::uint32_t size) {
  std::vector<Region> all;
  for (std::uint32_t rank = 0; rank < size; ++rank) all.push_back(blocks[rank]);
  return all;
}

}  // namespace

Plan allreduce(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const Blocks input = Blocks::even(Memory::kInput, shape);
  const Blocks output = input.in(Memory::kOutput);
  const std::uint32_t done = reduce_scatter(plan, shape, input, regions(output, shape.size));
  all_gather(plan, shape, output[shape.rank], output, shape.size, done);
  return std::move(plan).build();
}

Plan reduce_scatter(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const Blocks input = Blocks::uniform(Memory::kInput, shape);
  std::vector<Region> partial(shape.size);
  for (std::uint32_t s = 1; s + 1 < shape.size; ++s) {
    partial[shape.previous(1 + s)] = plan.scratch(shape.bytes());
  }
  partial[shape.rank] = {Memory::kOutput, 0, shape.bytes()};
  reduce_scatter(plan, shape, input, partial);
  return std::move(plan).build();
}

Plan all_gather(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const Blocks output = Blocks::listed(Memory::kOutput, shape.receive_counts, shape.element_bytes);
  const Region mine{Memory::kInput, 0, output[shape.rank].bytes};
  plan.copy(output[shape.rank], mine);
  all_gather(plan, shape, mine, output, 0, kNone);
  return std::move(plan).build();
}

Plan broadcast(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const Region all{Memory::kOutput, 0, shape.bytes()};
  std::uint32_t received = kNone;
  if (shape.rank != shape.root) received = plan.receive(shape.previous(), 0, all);
  if (shape.next() != shape.root) plan.send(shape.next(), 0, all, {received});
  return std::move(plan).build();
}

Plan reduce(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const bool is_root = shape.rank == shape.root;
  const Blocks input = Blocks::even(Memory::kInput, shape);
  const Blocks result = is_root ? input.in(Memory::kOutput)
                                : input.in(Memory::kScratch, plan.scratch(shape.bytes()).offset);
  const std::uint32_t done = reduce_scatter(plan, shape, input, regions(result, shape.size));
  const std::uint32_t tag = shape.size;
  if (!is_root) {
    plan.send(shape.root, tag, result[shape.rank], {done});
    return std::move(plan).build();
  }
  for (std::uint32_t peer = 0; peer < shape.size; ++peer) {
    if (peer != shape.rank) plan.receive(peer, tag, result[peer]);
  }
  return std::move(plan).build();
}

}  // namespace slipstream::ring
