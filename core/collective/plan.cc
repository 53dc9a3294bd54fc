#include "collective/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::uint64_t kScratchAlignment = 64;

/// Whether two steps touch exactly the same region, so that their segments correspond.
bool share_region(const Step& a, const Step& b) {
  const auto touches = [](const Step& step, const Region& region) {
    return region == step.from || region == step.to || region == step.operand ||
           region == step.encoded ||
           std::ranges::find(step.contributions, region) != step.contributions.end();
  };
  for (const Region* region : std::array{&a.from, &a.to, &a.operand, &a.encoded}) {
    if (region->bytes > 0 && touches(b, *region)) return true;
  }
  return false;
}

}  // namespace

Region PlanBuilder::encoded_scratch(std::uint64_t bytes) {
  Region region = scratch(encoded_bytes(plan_.codec, bytes / sizeof(float)));
  region.bytes = bytes;
  region.encoded = true;
  return region;
}

Region PlanBuilder::scratch(std::uint64_t bytes) {
  const Region region{Memory::kScratch, plan_.scratch_bytes, bytes};
  plan_.scratch_bytes += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return region;
}

std::uint32_t PlanBuilder::add(Step step, const After& after) {
  const std::uint64_t bytes = step.kind == Step::Kind::kSend ? step.from.bytes : step.to.bytes;
  if (bytes == 0 && !keeps_empty_) return kNone;
  for (const std::uint32_t index : after) {
    if (index != kNone) step.after.push_back({index, share_region(plan_.steps[index], step)});
  }
  plan_.steps.push_back(std::move(step));
  return static_cast<std::uint32_t>(plan_.steps.size() - 1);
}

std::uint32_t PlanBuilder::send(std::uint32_t peer, std::uint32_t tag, const Region& from,
                                const After& after) {
  Step step;
  step.kind = Step::Kind::kSend;
  step.peer = peer;
  step.tag = tag;
  step.from = from;
  plan_.sends_plain = plan_.sends_plain || !from.encoded;
  return add(std::move(step), after);
}

std::uint32_t PlanBuilder::send_encoded(std::uint32_t peer, std::uint32_t tag, const Region& from,
                                        const Region& encoded, const After& after) {
  Step step;
  step.kind = Step::Kind::kSend;
  step.work = Step::Work::kEncode;
  step.peer = peer;
  step.tag = tag;
  step.from = from;
  step.encoded = encoded;
  return add(std::move(step), after);
}

std::uint32_t PlanBuilder::receive(std::uint32_t peer, std::uint32_t tag, const Region& to) {
  Step step;
  step.kind = Step::Kind::kReceive;
  step.peer = peer;
  step.tag = tag;
  step.to = to;
  return add(std::move(step), {});
}

std::uint32_t PlanBuilder::receive_reduce(std::uint32_t peer, std::uint32_t tag, const Region& to,
                                          const Region& own, bool divides) {
  Step step;
  step.kind = Step::Kind::kReceive;
  step.work = Step::Work::kReduce;
  step.divides = divides;
  step.peer = peer;
  step.tag = tag;
  step.to = to;
  step.operand = own;
  return add(std::move(step), {});
}

std::uint32_t PlanBuilder::receive_decode(std::uint32_t peer, std::uint32_t tag, const Region& to) {
  Step step;
  step.kind = Step::Kind::kReceive;
  step.work = Step::Work::kDecode;
  step.peer = peer;
  step.tag = tag;
  step.to = to;
  return add(std::move(step), {});
}

std::uint32_t PlanBuilder::sum(const Region& to, const Region& encoded, const Region& own,
                               const std::vector<Region>& contributions, const After& after) {
  Step step;
  step.kind = Step::Kind::kLocal;
  step.work = Step::Work::kSum;
  step.divides = true;
  step.from = own;
  step.to = to;
  step.encoded = encoded;
  step.contributions = contributions;
  return add(std::move(step), after);
}

std::uint32_t PlanBuilder::copy(const Region& to, const Region& from, const After& after) {
  Step step;
  step.kind = Step::Kind::kLocal;
  step.from = from;
  step.to = to;
  return add(std::move(step), after);
}

std::uint32_t PlanBuilder::reduce(const Region& to, const Region& lower, const Region& upper,
                                  const After& after, bool divides) {
  Step step;
  step.kind = Step::Kind::kLocal;
  step.work = Step::Work::kReduce;
  step.divides = divides;
  step.from = lower;
  step.operand = upper;
  step.to = to;
  return add(std::move(step), after);
}

void PlanBuilder::keep_pace(const After& sends) {
  std::vector<std::uint32_t> flock;
  for (const std::uint32_t send : sends) {
    if (send == kNone) continue;
    plan_.steps[send].flock = static_cast<std::uint32_t>(plan_.flocks.size());
    flock.push_back(send);
  }
  if (!flock.empty()) plan_.flocks.push_back(std::move(flock));
}

Plan PlanBuilder::build() && {
  for (std::uint32_t index = 0; index < plan_.steps.size(); ++index) {
    Step& step = plan_.steps[index];
    if (step.kind == Step::Kind::kReceive) {
      const bool added = plan_.receives.emplace(Plan::key(step.peer, step.tag), index).second;
      SLIPSTREAM_ASSERT(added, "peer ", step.peer, " tag ", step.tag);
    }
    for (const Step::Link& before : step.after) {
      plan_.steps[before.step].dependents.push_back({index, before.by_segment});
    }
  }
  return std::move(plan_);
}

}  // namespace slipstream
