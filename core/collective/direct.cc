#include <vector>

#include "collective/algorithms.h"

namespace slipstream::direct {
namespace {

constexpr auto kNone = PlanBuilder::kNone;

/// Receives a block of `own.bytes` from every other rank and adds all of them up into `result`, in
/// the order of the ranks. The caller may use one buffer for both; `readers` are the sends that
/// still read it.
void gather_and_reduce(PlanBuilder& plan, const Shape& shape, const Region& own,
                       const Region& result, const PlanBuilder::After& readers) {
  std::vector<Region> value(shape.size, own);
  std::vector<std::uint32_t> ready(shape.size, kNone);
  for (std::uint32_t peer = 0; peer < shape.size; ++peer) {
    if (peer == shape.rank) continue;
    value[peer] = plan.scratch(own.bytes);
    ready[peer] = plan.receive(peer, 0, value[peer]);
  }
  Region sum = value[0];
  std::uint32_t last = ready[0];
  for (std::uint32_t rank = 1; rank < shape.size; ++rank) {
    const bool complete = rank + 1 == shape.size;
    // A partial sum is stored in a block that is no longer needed, so our own block must stay
    // intact until its turn.
    const Region& used = rank == shape.rank ? value[rank - 1] : value[rank];
    PlanBuilder::After after{last, ready[rank]};
    if (complete) after.insert(after.end(), readers.begin(), readers.end());
    last = plan.reduce(complete ? result : used, sum, value[rank], after, complete);
    sum = used;
  }
}

}  // namespace

Plan allreduce(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  const Region input{Memory::kInput, 0, shape.bytes()};
  PlanBuilder::After sent;
  for (std::uint32_t by = 1; by < shape.size; ++by) {
    sent.push_back(plan.send(shape.next(by), 0, input));
  }
  gather_and_reduce(plan, shape, input, {Memory::kOutput, 0, shape.bytes()}, sent);
  return std::move(plan).build();
}

Plan reduce_scatter(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  const Blocks input = Blocks::uniform(Memory::kInput, shape);
  for (std::uint32_t by = 1; by < shape.size; ++by) {
    plan.send(shape.next(by), 0, input[shape.next(by)]);
  }
  gather_and_reduce(plan, shape, input[shape.rank], {Memory::kOutput, 0, shape.bytes()}, {});
  return std::move(plan).build();
}

Plan all_gather(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  const Blocks output = Blocks::listed(Memory::kOutput, shape.receive_counts, shape.element_bytes);
  const Region mine{Memory::kInput, 0, output[shape.rank].bytes};
  for (std::uint32_t by = 1; by < shape.size; ++by) {
    plan.send(shape.next(by), 0, mine);
    plan.receive(shape.previous(by), 0, output[shape.previous(by)]);
  }
  plan.copy(output[shape.rank], mine);
  return std::move(plan).build();
}

Plan broadcast(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  const Region all{Memory::kOutput, 0, shape.bytes()};
  if (shape.rank != shape.root) {
    plan.receive(shape.root, 0, all);
    return std::move(plan).build();
  }
  for (std::uint32_t by = 1; by < shape.size; ++by) plan.send(shape.next(by), 0, all);
  return std::move(plan).build();
}

Plan gather(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  const Region mine{Memory::kInput, 0, shape.bytes()};
  if (shape.rank != shape.root) {
    plan.send(shape.root, 0, mine);
    return std::move(plan).build();
  }
  const Blocks output = Blocks::uniform(Memory::kOutput, shape);
  for (std::uint32_t by = 1; by < shape.size; ++by) {
    plan.receive(shape.next(by), 0, output[shape.next(by)]);
  }
  plan.copy(output[shape.rank], mine);
  return std::move(plan).build();
}

Plan scatter(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  const Region mine{Memory::kOutput, 0, shape.bytes()};
  if (shape.rank != shape.root) {
    plan.receive(shape.root, 0, mine);
    return std::move(plan).build();
  }
  const Blocks input = Blocks::uniform(Memory::kInput, shape);
  for (std::uint32_t by = 1; by < shape.size; ++by) {
    plan.send(shape.next(by), 0, input[shape.next(by)]);
  }
  plan.copy(mine, input[shape.rank]);
  return std::move(plan).build();
}

Plan all_to_all(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  const Blocks input = Blocks::listed(Memory::kInput, shape.send_counts, shape.element_bytes);
  const Blocks output = Blocks::listed(Memory::kOutput, shape.receive_counts, shape.element_bytes);
  for (std::uint32_t by = 1; by < shape.size; ++by) {
    plan.send(shape.next(by), 0, input[shape.next(by)]);
    plan.receive(shape.previous(by), 0, output[shape.previous(by)]);
  }
  plan.copy(output[shape.rank], input[shape.rank]);
  return std::move(plan).build();
}

Plan barrier(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect, /*keeps_empty=*/true);
  for (std::uint32_t by = 1; by < shape.size; ++by) {
    plan.send(shape.next(by), 0, {});
    plan.receive(shape.previous(by), 0, {});
  }
  return std::move(plan).build();
}

Plan point_to_point(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect, /*keeps_empty=*/true);
  if (shape.collective == Collective::kSend) {
    plan.send(shape.root, 0, {Memory::kInput, 0, shape.bytes()});
  } else {
    plan.receive(shape.root, 0, {Memory::kOutput, 0, shape.bytes()});
  }
  return std::move(plan).build();
}

}  // namespace slipstream::direct
