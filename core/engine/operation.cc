#include "engine/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "codec/reduce.h"
#include "engine/group.h"

namespace slipstream {

std::string describe(const Request& request) {
  std::ostringstream out;
  out << name_of(request.collective);
  const bool reduces = request.collective == Collective::kAllreduce ||
                       request.collective == Collective::kReduceScatter ||
                       request.collective == Collective::kReduce;
  if (reduces) out << ' ' << name_of(request.op);
  if (request.collective == Collective::kBarrier) return out.str();
  const auto list = [&](const char* label, const std::vector<std::uint64_t>& counts) {
    out << label << '[';
    for (std::size_t i = 0; i < counts.size(); ++i) out << (i == 0 ? "" : ", ") << counts[i];
    out << ']';
  };
  out << ' ' << name_of(request.dtype);
  if (!request.send_counts.empty()) {
    list(" sending ", request.send_counts);
    list(" receiving ", request.receive_counts);
  } else if (!request.receive_counts.empty()) {
    list(" x ", request.receive_counts);
  } else {
    out << " x " << request.count;
  }
  switch (request.collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
      out << " root " << request.root;
      break;
    case Collective::kSend:
      out << " to " << request.root << " tag " << request.tag;
      break;
    case Collective::kReceive:
      out << " from " << (request.root == kAnyPeer ? "any" : std::to_string(request.root))
          << " tag " << request.tag;
      break;
    default:
      break;
  }
  return out.str();
}

Operation::Operation(Request request, std::shared_ptr<const Plan> plan,
                     std::shared_ptr<Group> group, std::uint64_t segment_bytes)
    : request_(std::move(request)),
      plan_(std::move(plan)),
      group_(std::move(group)),
      segment_bytes_(segment_bytes) {
  states_.reserve(plan_->steps.size());
  std::uint64_t bits = 0;
  for (const Step& step : plan_->steps) {
    const std::uint64_t bytes = step.kind == Step::Kind::kSend ? step.from.bytes : step.to.bytes;
    const std::uint64_t segments =
        std::max<std::uint64_t>(1, (bytes + segment_bytes_ - 1) / segment_bytes_);
    states_.push_back({static_cast<std::uint32_t>(segments), 0, bits});
    bits += kBits * segments;
    segments_left_ += segments;
  }
  bits_.resize((bits + 63) / 64);
  if (plan_->scratch_bytes > 0) {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(plan_->scratch_bytes);
  }
}

std::string Operation::title() const {
  const std::string name = request_.name.empty() ? "" : concat(" '", request_.name, "'");
  return concat(name_of(request_.collective), name, " of group '", group_->name(), "'");
}

bool Operation::is_finished(std::uint32_t step, std::uint32_t segment) const {
  return bit(bits_of(step, segment) + 1);
}

bool Operation::place(std::uint32_t step, std::uint32_t segment) {
  const std::uint64_t placed = bits_of(step, segment) + 2;
  const bool before = bit(placed);
  set_bit(placed);
  return before;
}

bool Operation::needs(std::uint32_t peer) const {
  for (std::uint32_t index = 0; index < states_.size(); ++index) {
    const Step& step = plan_->steps[index];
    if (step.kind != Step::Kind::kLocal && step.peer == peer && !is_finished(index)) return true;
  }
  return false;
}

bool Operation::may_begin(const Step& step, std::uint32_t segment) const {
  return std::ranges::all_of(step.after, [&](const Step::Link& before) {
    return before.by_segment ? is_finished(before.step, segment) : is_finished(before.step);
  });
}

void Operation::issue_if_ready(std::uint32_t step, std::uint32_t segment, const Issue& issue) {
  const std::uint64_t issued = bits_of(step, segment);
  if (bit(issued) || !may_begin(plan_->steps[step], segment)) return;
  set_bit(issued);
  issue(step, segment);
}

void Operation::begin(const Issue& issue) {
  for (std::uint32_t step = 0; step < plan_->steps.size(); ++step) {
    if (plan_->steps[step].kind == Step::Kind::kReceive || !plan_->steps[step].after.empty()) {
      continue;
    }
    for (std::uint32_t segment = 0; segment < states_[step].segments; ++segment) {
      issue_if_ready(step, segment, issue);
    }
  }
}

bool Operation::finish_segment(std::uint32_t step, std::uint32_t segment, const Issue& issue) {
  State& state = states_[step];
  set_bit(bits_of(step, segment) + 1);
  ++state.finished;
  --segments_left_;
  const bool step_finished = state.finished == state.segments;
  for (const Step::Link& next : plan_->steps[step].dependents) {
    if (next.by_segment) {
      issue_if_ready(next.step, segment, issue);
    } else if (step_finished) {
      for (std::uint32_t each = 0; each < states_[next.step].segments; ++each) {
        issue_if_ready(next.step, each, issue);
      }
    }
  }
  return segments_left_ == 0;
}

std::byte* Operation::address(const Region& region) const {
  switch (region.memory) {
    case Memory::kInput:
      // Only ever read through; one pointer type keeps the regions alike.
      return static_cast<std::byte*>(const_cast<void*>(request_.input)) + region.offset;
    case Memory::kOutput:
      return static_cast<std::byte*>(request_.output) + region.offset;
    default:
      return scratch_.get() + region.offset;
  }
}

std::span<std::byte> Operation::segment_of(const Region& region, std::uint32_t segment) const {
  if (region.bytes == 0) return {};
  const std::uint64_t offset = segment * segment_bytes_;
  return {address(region) + offset, std::min(segment_bytes_, region.bytes - offset)};
}

void Operation::combine(const Step& step, std::span<std::byte> to, const std::byte* lower,
                        const std::byte* upper) const {
  const std::size_t count = to.size() / size_of(request_.dtype);
  reduce(request_.dtype, request_.op, to.data(), lower, upper, count);
  if (step.divides && request_.op == ReduceOp::kAverage) {
    divide(request_.dtype, to.data(), count, group_->size());
  }
}

void Operation::run_local(std::uint32_t index, std::uint32_t segment) const {
  const Step& step = plan_->steps[index];
  const std::span<std::byte> to = segment_of(step.to, segment);
  const std::span<std::byte> from = segment_of(step.from, segment);
  if (step.reduces) {
    combine(step, to, from.data(), segment_of(step.operand, segment).data());
  } else if (to.data() != from.data() && !to.empty()) {
    std::memcpy(to.data(), from.data(), to.size());
  }
}

void Operation::take(std::uint32_t index, std::uint32_t segment,
                     std::span<const std::byte> payload) const {
  const Step& step = plan_->steps[index];
  const std::span<std::byte> to = segment_of(step.to, segment);
  if (step.reduces) {
    combine(step, to, payload.data(), segment_of(step.operand, segment).data());
  } else if (to.data() != payload.data() && !to.empty()) {
    std::memcpy(to.data(), payload.data(), to.size());
  }
}

}  // namespace slipstream
