#include "engine/group.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "collective/choose.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::size_t kRememberedOperations = 64;
constexpr std::size_t kRememberedPlans = 64;
// For smaller data, latency matters more than bytes.
constexpr std::uint64_t kLeastEncodedBytes = 32 * 1024;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15U + (hash << 6U) + (hash >> 2U);
  hash *= 0xff51afd7ed558ccdU;
  return hash ^ (hash >> 33U);
}

bool reduces(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

void check_peer(const Request& request, const Group& group) {
  const bool any = request.collective == Collective::kReceive && request.root == kAnyPeer;
  if (!any && (request.root >= group.size() || request.root == group.rank())) {
    fail(ErrorKind::kUsage, title_of(request), ": peer ", request.root,
         " is not another rank of group '", group.name(), "'; allowed: 0 to ", group.size() - 1,
         ", except this rank, ", group.rank());
  }
}

void check(const Request& request, const Group& group) {
  if (reduces(request.collective) && !is_supported(request.op, request.dtype)) {
    fail(ErrorKind::kUsage, title_of(request), ": operation ", name_of(request.op),
         " is not defined for ", name_of(request.dtype), "; choose another operation or dtype");
  }
  if (has_root(request.collective) && request.root >= group.size()) {
    fail(ErrorKind::kUsage, title_of(request), ": root ", request.root, " is not a rank of group '",
         group.name(), "'; allowed: 0 to ", group.size() - 1);
  }
  for (const auto* counts : {&request.send_counts, &request.receive_counts}) {
    if (!counts->empty() && counts->size() != group.size()) {
      fail(ErrorKind::kUsage, title_of(request), ": received ", counts->size(), " counts for the ",
           group.size(), " ranks of group '", group.name(), "'; pass one count for each rank");
    }
  }
  if (request.collective == Collective::kSend || request.collective == Collective::kReceive) {
    check_peer(request, group);
  }
}

/// A hash of the properties on which all ranks of an operation must agree.
std::uint64_t fingerprint_of(const Request& request) {
  std::uint64_t hash = mix(0, static_cast<std::uint64_t>(request.collective));
  hash = mix(hash, static_cast<std::uint64_t>(request.dtype));
  if (request.collective == Collective::kSend || request.collective == Collective::kReceive) {
    // The same on both sides.
    return mix(mix(0, static_cast<std::uint64_t>(request.dtype)), request.whole_bytes);
  }
  if (reduces(request.collective)) hash = mix(hash, static_cast<std::uint64_t>(request.op));
  if (has_root(request.collective)) hash = mix(hash, request.root);
  hash = mix(hash, static_cast<std::uint64_t>(request.algorithm));
  hash = mix(hash, static_cast<std::uint64_t>(request.codec));
  hash = mix(mix(hash, request.segment_bytes), request.whole_bytes);
  if (request.collective == Collective::kAllToAll)
    return hash;  // counts agree only between pairs of ranks
  for (const std::uint64_t count : request.receive_counts) hash = mix(hash, count);
  return mix(hash, request.count);
}

/// Whether the request's codec applies.
bool is_encoded(const Request& request, const Group& group) {
  const bool adds = request.op == ReduceOp::kSum || request.op == ReduceOp::kAverage;
  return request.codec != Codec::kNone && request.collective == Collective::kAllreduce &&
         request.dtype == DType::kFloat32 && adds && group.layout().even &&
         group.layout().hosts.size() > 1 && request.count * sizeof(float) >= kLeastEncodedBytes;
}

using Bytes = std::span<const std::byte>;

bool overlap(Bytes a, Bytes b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() &&
         b.data() < a.data() + a.size();
}

/// For collectives that read their input while results arrive: the two must not overlap, except in
/// this rank's own block, which is not sent.
void check_apart(const Request& request, const Shape& shape) {
  const auto sum = [](const std::vector<std::uint64_t>& counts, std::size_t first) {
    const auto begin = counts.begin();
    return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(first), std::uint64_t{0});
  };
  std::uint64_t input = shape.count * shape.size, output = shape.count, own_in = 0, own_out = 0;
  switch (request.collective) {
    case Collective::kAllGather:
      input = shape.receive_counts[shape.rank];
      output = sum(shape.receive_counts, shape.size);
      own_out = sum(shape.receive_counts, shape.rank);
      break;
    case Collective::kScatter:
      if (shape.rank != shape.root) return;
      [[fallthrough]];
    case Collective::kReduceScatter:
      own_in = shape.count * shape.rank;
      break;
    case Collective::kAllToAll:
      input = sum(shape.send_counts, shape.size);
      output = sum(shape.receive_counts, shape.size);
      break;
    default:
      return;
  }
  const auto* in = static_cast<const std::byte*>(request.input);
  const auto* out = static_cast<const std::byte*>(request.output);
  const bool own_block = in + own_in * shape.element_bytes == out + own_out * shape.element_bytes;
  const bool may_be_own = request.collective != Collective::kAllToAll || shape.size == 1;
  if (own_block && may_be_own) return;
  if (overlap({in, input * shape.element_bytes}, {out, output * shape.element_bytes})) {
    fail(
        ErrorKind::kUsage, title_of(request),
        ": input and output overlap; pass two separate buffers",
        may_be_own ? ", or let the smaller buffer be this rank's own block of the larger one" : "");
  }
}

}  // namespace

Shape shape_of(const Request& request, const Group& group) {
  check(request, group);
  Shape shape;
  shape.collective = request.collective;
  shape.rank = group.rank();
  shape.size = group.size();
  shape.root = request.root;
  shape.element_bytes = size_of(request.dtype);
  shape.layout = &group.layout();
  if (is_encoded(request, group)) shape.codec = request.codec;
  shape.count = request.count;
  shape.send_counts = request.send_counts;
  shape.receive_counts = request.receive_counts;
  const std::vector<std::uint64_t> equal(group.size(), request.count);
  if (request.collective == Collective::kAllToAll && shape.send_counts.empty()) {
    shape.send_counts = shape.receive_counts = equal;
  }
  if (request.collective == Collective::kAllGather && shape.receive_counts.empty()) {
    shape.receive_counts = equal;
  }
  check_apart(request, shape);
  return shape;
}

Group::Group(std::string name, std::uint64_t id, std::vector<std::uint32_t> ranks,
             std::uint32_t rank, std::uint32_t world_size, Layout layout)
    : posted(ranks.size()),
      submitted(ranks.size()),
      next_message(ranks.size()),
      name_(std::move(name)),
      id_(id),
      ranks_(std::move(ranks)),
      rank_(rank),
      layout_(std::move(layout)),
      index_(world_size, kNotAMember) {
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) index_[ranks_[i]] = i;
}

std::shared_ptr<const Plan> Group::plan_for(const Shape& shape, Algorithm forced) {
  const Algorithm algorithm = shape.size == 1 ? Algorithm::kDirect : choose(shape, forced);
  for (const auto& [known, plan] : plans_) {
    if (known == shape && plan->algorithm == algorithm) return plan;
  }
  auto plan = std::make_shared<const Plan>(make_plan(shape, algorithm));
  if (plans_.size() < kRememberedPlans) {
    plans_.emplace_back(shape, plan);
  } else {
    plans_[next_plan_++ % kRememberedPlans] = {shape, plan};
  }
  return plan;
}

void Group::complete(Request& request) const {
  if (!tuning_ || request.collective != Collective::kAllreduce) return;
  if (request.segment_bytes == 0) request.segment_bytes = tuning_->segment_bytes;
  if (request.algorithm != Algorithm::kAuto) return;
  const std::uint64_t bytes = request.count * size_of(request.dtype);
  if (bytes <= tuning_->direct_bytes) {
    request.algorithm = Algorithm::kDirect;
  } else if (bytes <= tuning_->doubling_bytes) {
    request.algorithm = Algorithm::kRecursiveDoubling;
  } else {
    request.algorithm = layout_.dimensions.size() > 1 ? Algorithm::kDimensions : Algorithm::kRing;
  }
}

std::shared_ptr<Operation> Group::find(std::uint64_t sequence) const {
  const auto found = running.find(sequence);
  return found == running.end() ? nullptr : found->second;
}

std::optional<std::string> Group::passed(std::uint64_t sequence) const {
  for (const Remembered& each : history_) {
    if (each.sequence == sequence) return describe(each.request);
  }
  return std::nullopt;
}

bool Group::agrees(std::uint32_t peer, const Frame& frame) const {
  if (const auto operation = find(frame.sequence)) {
    return fingerprint(operation->request(), peer) == frame.fingerprint;
  }
  const auto past = std::ranges::find(history_, frame.sequence, &Remembered::sequence);
  return past == history_.end() || fingerprint(past->request, peer) == frame.fingerprint;
}

std::uint64_t Group::fingerprint(const Request& request, std::uint32_t peer) const {
  const std::uint64_t hash = fingerprint_of(request);
  if (request.collective != Collective::kAllToAll) return hash;
  const bool equal = request.send_counts.empty();
  const std::uint64_t to = equal ? request.count : request.send_counts[peer];
  const std::uint64_t from = equal ? request.count : request.receive_counts[peer];
  return rank_ < peer ? mix(mix(hash, to), from) : mix(mix(hash, from), to);
}

std::string Group::last_title() const {
  if (history_.empty()) return "";
  const Remembered& last = history_.back();
  return concat(title_of(last.request), " of group '", name_, "' (operation ", last.sequence, ")");
}

void Group::remember(const Operation& operation) {
  if (history_.size() == kRememberedOperations) history_.pop_front();
  history_.push_back({operation.sequence(), operation.request()});
  last_order = operation.order();
}

}  // namespace slipstream
