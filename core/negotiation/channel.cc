#include "negotiation/channel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "collective/choose.h"

namespace slipstream {
namespace {

constexpr std::uint32_t kMostDirect = 4;      // most ranks that send directly to one another
constexpr std::uint32_t kMostInOneStep = 16;  // most ranks whose all_gather is not a ring
constexpr std::uint64_t kMostDoubledBytes = 1 << 20;
constexpr Nanoseconds kNudgeAfter = 100us;
constexpr std::size_t kBlockBytes = 1024;  // bytes of each text in the first exchange
constexpr std::size_t kInBlock = kBlockBytes - sizeof(std::uint64_t);
/// Bytes of a rank's text. Ten thousand tensors take about one MB.
constexpr std::uint64_t kMostTextBytes = std::uint64_t{256} << 20U;
constexpr int kPriority = 1 << 20;

/// The group's ranks in an order in which the ranks of a host and of a rack are adjacent, so that
/// the first exchanges of a doubling are between neighbours.
std::vector<std::uint32_t> by_place(const Engine& engine, const Group& group) {
  std::vector<std::uint32_t> order(group.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto first = [&](std::uint32_t rank, std::string Place::* level) {
    const auto is_same = [&](std::uint32_t other) {
      return engine.place_of(group.ranks()[other]).*level ==
             engine.place_of(group.ranks()[rank]).*level;
    };
    std::uint32_t found = 0;
    while (!is_same(found)) ++found;
    return found;
  };
  std::vector<std::array<std::uint32_t, 3>> keys;
  for (const std::uint32_t rank : order) {
    keys.push_back({first(rank, &Place::rack), first(rank, &Place::host), rank});
  }
  std::ranges::sort(order, {}, [&](std::uint32_t rank) { return keys[rank]; });
  return order;
}

}  // namespace

Channel::Channel(Engine& engine, const Group& group)
    : engine_(engine), name_(group.name()), rank_(group.rank()), ranks_(by_place(engine, group)) {
  std::vector<std::uint32_t> world;
  for (const std::uint32_t rank : ranks_) world.push_back(group.ranks()[rank]);
  group_ = engine.make_group(concat("negotiation of ", name_), std::move(world));
}

Channel::~Channel() = default;

void Channel::count(const Request& request) {
  if (size() == 1) return;
  // No other thread uses the group, so its plans need no lock here.
  const Shape shape = shape_of(request, *group_);
  for (const Step& step : group_->plan_for(shape, request.algorithm)->steps) {
    if (step.kind == Step::Kind::kLocal) continue;
    ++messages_;
    if (step.kind == Step::Kind::kSend) payload_bytes_ += step.from.bytes;
  }
}

/// In recursive doubling with a number of ranks that is no power of two, an even rank among the
/// first ones needs its neighbour's words before it sends any, so it does not wake the neighbour
/// otherwise.
void Channel::run(Request request) {
  request.priority = kPriority;
  request.waits_soon = true;
  count(request);
  const bool doubles = request.algorithm == Algorithm::kRecursiveDoubling;
  const std::uint32_t folding = doubles ? 2 * (size() - std::bit_floor(size())) : 0;
  ++begun_;
  const auto completion = engine_.submit(group_, std::move(request));
  const std::uint32_t self = group_->rank();
  const bool waits_for_neighbour = self < folding && self % 2 == 0;
  if (waits_for_neighbour && !engine_.wait(*completion, Clock::now() + kNudgeAfter)) {
    engine_.nudge(*group_, self + 1);
  }
  while (!engine_.wait(*completion, Clock::now() + 1s)) {
  }
  if (completion->error()) throw Error(*completion->error());
}

void Channel::and_words(std::vector<std::uint64_t>& words) {
  Request request;
  request.collective = Collective::kAllreduce;
  request.op = ReduceOp::kBand;
  request.dtype = DType::kUInt64;
  request.input = request.output = words.data();
  request.count = words.size();
  request.algorithm = size() <= kMostDirect ? Algorithm::kDirect : Algorithm::kRecursiveDoubling;
  request.name = "round";
  run(std::move(request));
}

/// If rings would be long, each rank sets the others' parts to ones, and all compute the AND: more
/// bytes, but only log2 n exchanges.
std::vector<char> Channel::spread(std::string_view own, const std::vector<std::uint64_t>& counts) {
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  std::vector<char> all(total);
  if (size() > kMostInOneStep && total <= kMostDoubledBytes) {
    std::vector<std::uint64_t> words((total + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t),
                                     ~std::uint64_t{0});
    const auto before =
        std::accumulate(counts.begin(), counts.begin() + group_->rank(), std::uint64_t{0});
    std::memcpy(reinterpret_cast<char*>(words.data()) + before, own.data(), own.size());
    and_words(words);
    std::memcpy(all.data(), words.data(), total);
    return all;
  }
  Request request;
  request.collective = Collective::kAllGather;
  request.input = own.data();
  request.output = all.data();
  request.receive_counts = counts;
  request.name = "metadata";
  run(std::move(request));
  return all;
}

std::vector<std::string> Channel::gather(const std::string& own) {
  const std::uint64_t length = own.size();
  std::string block(kBlockBytes, '\0');
  std::memcpy(block.data(), &length, sizeof length);
  std::memcpy(block.data() + sizeof length, own.data(), std::min<std::size_t>(length, kInBlock));
  const std::vector<char> blocks =
      spread(block, std::vector<std::uint64_t>(size(), std::uint64_t{kBlockBytes}));
  std::vector<std::uint64_t> rests(size());
  std::vector<std::string> texts(size());
  for (std::uint32_t from = 0; from < size(); ++from) {
    const char* const theirs = blocks.data() + from * kBlockBytes;
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, theirs, sizeof bytes);
    if (bytes > kMostTextBytes) {
      fail(ErrorKind::kPeer, "rank ", ranks_[from], " of group '", name_, "' announces ", bytes,
           " bytes about its tensors; allowed: at most ", kMostTextBytes);
    }
    rests[from] = bytes - std::min<std::uint64_t>(bytes, kInBlock);
    texts[ranks_[from]].assign(theirs + sizeof bytes, bytes - rests[from]);
  }
  if (std::ranges::all_of(rests, [](std::uint64_t bytes) { return bytes == 0; })) return texts;
  const std::vector<char> more =
      spread(std::string_view(own).substr(std::min<std::size_t>(length, kInBlock)), rests);
  const char* at = more.data();
  for (std::uint32_t from = 0; from < size(); ++from) {
    texts[ranks_[from]].append(at, rests[from]);
    at += rests[from];
  }
  return texts;
}

}  // namespace slipstream
