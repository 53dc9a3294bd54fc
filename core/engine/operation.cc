#include "engine/operation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "codec/wire.h"
#include "engine/group.h"
#include "reduce/reduce.h"

namespace slipstream {
namespace {

float* floats_at(std::span<std::byte> bytes) { return reinterpret_cast<float*>(bytes.data()); }

}  // namespace

std::string title_of(const Request& request) {
  const std::string name = request.name.empty() ? "" : concat(" '", request.name, "'");
  return concat(name_of(request.collective), name);
}

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
  if (request.codec != Codec::kNone) out << " as " << name_of(request.codec);
  if (request.algorithm != Algorithm::kAuto) out << " by " << name_of(request.algorithm);
  if (request.segment_bytes != 0) out << " in segments of " << request.segment_bytes;
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
    states_.push_back({.segments = static_cast<std::uint32_t>(segments), .first_bit = bits});
    bits += kBits * segments;
    segments_left_ += segments;
  }
  bits_.resize((bits + 63) / 64);
  if (plan_->scratch_bytes > 0) {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(plan_->scratch_bytes);
  }
}

std::string Operation::title() const {
  return concat(title_of(request_), " of group '", group_->name(), "'");
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
      // It is only read; a single pointer type keeps the code for all regions the same.
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
  const std::uint64_t bytes = std::min(segment_bytes_, region.bytes - offset);
  return {address(region) + stored_bytes(region, offset), stored_bytes(region, bytes)};
}

std::span<const std::byte> Operation::outgoing(std::uint32_t index, std::uint32_t segment) {
  const Step& step = plan_->steps[index];
  if (step.work != Step::Work::kEncode) return segment_of(step.from, segment);
  if (!place(index, segment)) encode_segment(step, segment);
  return segment_of(step.encoded, segment);
}

bool Operation::keeps_pace(std::uint32_t index) const {
  constexpr std::uint32_t kLead = 2;
  return std::ranges::all_of(plan_->flocks[plan_->steps[index].flock], [&](std::uint32_t other) {
    const State& state = states_[other];
    return state.queued == 0 || states_[index].sent <= state.sent + kLead;
  });
}

std::uint64_t Operation::incoming_bytes(std::uint32_t index, std::uint32_t segment) const {
  Region travels = plan_->steps[index].to;
  travels.encoded = travels.encoded || plan_->steps[index].work == Step::Work::kDecode;
  return segment_of(travels, segment).size();
}

void Operation::combine(const Step& step, std::span<std::byte> to, const std::byte* lower,
                        const std::byte* upper) const {
  const std::size_t count = to.size() / size_of(request_.dtype);
  reduce(request_.dtype, request_.op, to.data(), lower, upper, count);
  if (step.divides && request_.op == ReduceOp::kAverage) {
    divide(request_.dtype, to.data(), count, group_->size());
  }
}

/// The residuals have the layout of the input and the output.
float* Operation::residual_of(const Region& region, std::uint32_t segment) const {
  if (request_.residual == nullptr) return nullptr;
  const std::uint64_t element = (region.offset + segment * segment_bytes_) / sizeof(float);
  return request_.residual + element;
}

void Operation::encode_segment(const Step& step, std::uint32_t segment) const {
  const std::span<std::byte> from = segment_of(step.from, segment);
  const std::span<std::byte> to = segment_of(step.encoded, segment);
  const std::size_t count = from.size() / sizeof(float);
  if (float* const residual = residual_of(step.from, segment)) {
    encode_with_residual(plan_->codec, floats_at(from), residual, count, to.data());
  } else {
    encode(plan_->codec, floats_at(from), count, to.data());
  }
}

/// Sums run by run, so that the sum never leaves the cache. Residuals are kept in units of the sum,
/// even if the average is sent, so that they may move between owner and contributor.
void Operation::sum_segment(const Step& step, std::uint32_t segment) const {
  constexpr std::size_t kRun = 2048;  // a multiple of the block of every codec
  const std::span<std::byte> own = segment_of(step.from, segment);
  const std::span<std::byte> to = segment_of(step.to, segment);
  std::byte* const encoded = segment_of(step.encoded, segment).data();
  float* const residual = residual_of(step.from, segment);
  const bool averages = request_.op == ReduceOp::kAverage;
  const float parts = averages ? static_cast<float>(group_->size()) : 1.0F;
  std::array<float, kRun> total{}, left{};
  const std::size_t count = own.size() / sizeof(float);
  for (std::size_t at = 0; at < count; at += kRun) {
    const std::size_t run = std::min(kRun, count - at);
    const std::size_t skip = encoded_bytes(plan_->codec, at);
    std::memcpy(total.data(), floats_at(own) + at, run * sizeof(float));
    for (const Region& each : step.contributions) {
      decode_add(plan_->codec, segment_of(each, segment).data() + skip, run, total.data());
    }
    if (averages) divide(DType::kFloat32, total.data(), run, group_->size());
    if (residual == nullptr) {
      encode(plan_->codec, total.data(), run, encoded + skip);
    } else {
      for (std::size_t i = 0; i < run; ++i) left[i] = residual[at + i] / parts;
      encode_with_residual(plan_->codec, total.data(), left.data(), run, encoded + skip);
      for (std::size_t i = 0; i < run; ++i) residual[at + i] = left[i] * parts;
    }
    decode(plan_->codec, encoded + skip, run, floats_at(to) + at);
  }
}

void Operation::run_local(std::uint32_t index, std::uint32_t segment) const {
  const Step& step = plan_->steps[index];
  const std::span<std::byte> to = segment_of(step.to, segment);
  const std::span<std::byte> from = segment_of(step.from, segment);
  if (step.work == Step::Work::kSum) return sum_segment(step, segment);
  if (step.work == Step::Work::kReduce) {
    combine(step, to, from.data(), segment_of(step.operand, segment).data());
  } else if (to.data() != from.data() && !to.empty()) {
    std::memcpy(to.data(), from.data(), to.size());
  }
}

void Operation::take(std::uint32_t index, std::uint32_t segment,
                     std::span<const std::byte> payload) const {
  const Step& step = plan_->steps[index];
  const std::span<std::byte> to = segment_of(step.to, segment);
  if (step.work == Step::Work::kDecode) {
    decode(plan_->codec, payload.data(), to.size() / sizeof(float), floats_at(to));
  } else if (step.work == Step::Work::kReduce) {
    combine(step, to, payload.data(), segment_of(step.operand, segment).data());
  } else if (to.data() != payload.data() && !to.empty()) {
    std::memcpy(to.data(), payload.data(), to.size());
  }
}

}  // namespace slipstream
