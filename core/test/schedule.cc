#include "test/schedule.h"

#include <algorithm>
#include <array>
#include <random>

namespace slipstream::test {
namespace {

constexpr std::size_t kRowBytes = 4096;          // the least width of a row in a slot
constexpr std::size_t kMostBytes = 160 << 10;    // of one tensor
constexpr std::size_t kEncodedBytes = 32 << 10;  // shorter allreduces are never encoded
// A message is one call of both ranks, so the number of kReceive stands for an exchange.
constexpr auto kExchange = Collective::kReceive;
constexpr auto kNumKinds = static_cast<std::uint64_t>(kExchange) + 1;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <typename T>
  T any(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  std::uint32_t number(std::uint32_t limit) { return static_cast<std::uint32_t>(below(limit)); }

 private:
  std::mt19937_64 random_;
};

void draw_network(Draw& draw, Schedule& made) {
  made.network =
      draw.any({Schedule::Network::kFake, Schedule::Network::kFake, Schedule::Network::kFake,
                Schedule::Network::kFake, Schedule::Network::kFake, Schedule::Network::kFake,
                Schedule::Network::kShm, Schedule::Network::kTcp});
  FakeOptions& fake = made.fake;
  fake.seed = made.seed;
  fake.num_streams = 1 + draw.number(3);
  fake.capacity_frames = draw.any({2U, 4U, 16U});
  fake.copies_payload = draw.one_in(2);
  fake.jitter = draw.any<Nanoseconds>({0us, 0us, 20us, 100us});
  fake.split_probability = draw.any({0.0, 0.0, 0.5});
  const bool may_lose = fake.num_streams > 1 && !fake.copies_payload;
  if (may_lose && draw.one_in(2)) fake.schedule.random.lose_stream = 0.003;
  if (draw.one_in(6)) fake.schedule.random.freeze_link = 0.003;
  if (made.network != Schedule::Network::kFake) return;
  if (draw.one_in(2)) {
    made.engine.segment_bytes = draw.any({16U << 10, 32U << 10});
    made.engine.eager_bytes = draw.any({256U, 2048U});
    made.engine.eager_pool_bytes = 16 << 10;
  }
  if (draw.one_in(3)) return;
  for (std::uint32_t rank = 0; rank < made.size; ++rank) {
    made.places.push_back({.host = concat("host ", rank)});
  }
}

void draw_device(Draw& draw, Schedule& made) {
  made.device.seed = made.seed;
  made.device.longest_delay = draw.any<Nanoseconds>({0us, 0us, 20us, 100us});
  made.device.one_queue = draw.one_in(5);
  made.device.patience = 60s;  // the watchdog comes first
  made.num_streams = 1 + draw.number(4);
  RingShape& ring = made.staging.ring;
  ring.num_slots = 1U << draw.below(4);
  ring.slot_bytes = kRowBytes * 2 * made.size * (1 + draw.below(2));
  ring.first_sequence = draw.any({1U, 0xffff'fff0U, 0x7fff'fff0U});
  made.staging.max_chunks_ahead = ring.num_slots + 1 + draw.number(12);
  made.staging.allow_small_slots = true;
}

void draw_groups(Draw& draw, Schedule& made) {
  std::vector<std::uint32_t> ranks(made.size);
  for (std::uint32_t i = 0; i < made.size; ++i) ranks[i] = i;
  made.groups.push_back(ranks);
  if (draw.one_in(2)) made.groups.emplace_back(ranks.rbegin(), ranks.rend());
  if (draw.one_in(2)) {
    std::rotate(ranks.begin(), ranks.begin() + draw.number(made.size), ranks.end());
    ranks.resize(std::max<std::size_t>(2, 1 + draw.below(made.size)));
    made.groups.push_back(ranks);
  }
}

void draw_reduction(Draw& draw, const Schedule& made, ScheduledCall& call) {
  Request& request = call.request;
  do {
    request.op = static_cast<ReduceOp>(draw.below(kNumReduceOps));
  } while (!is_supported(request.op, request.dtype));
  const std::size_t slot = made.staging.ring.slot_bytes;
  const bool may_encode = !made.places.empty() && slot >= kEncodedBytes;
  if (request.collective != Collective::kAllreduce || !may_encode || draw.one_in(3)) return;
  request.dtype = DType::kFloat32;
  // A third is not exact, and the last chunk, which may be too short to be encoded, would differ.
  const bool is_third = made.groups[call.group].size() == 3;
  request.op = is_third || draw.one_in(2) ? ReduceOp::kSum : ReduceOp::kAverage;
  request.codec = static_cast<Codec>(draw.below(kNumCodecs));
  request.count = kMostBytes / sizeof(float) - draw.below(kMostBytes / 16);
  if (request.op != ReduceOp::kSum || request.codec == Codec::kInt8 || draw.one_in(2)) return;
  // Chunks that are too short to be encoded leave their residual as it is, so all are full.
  request.count = slot / sizeof(float) * (1 + draw.below(3));
  call.has_residual = true;
}

std::uint64_t draw_count(Draw& draw, std::size_t most_bytes, DType dtype) {
  const std::size_t most = most_bytes / size_of(dtype);
  return draw.one_in(4) ? draw.below(4) : draw.below(most + 1);
}

ScheduledCall draw_call(Draw& draw, const Schedule& made) {
  ScheduledCall call;
  call.group = draw.number(static_cast<std::uint32_t>(made.groups.size()));
  const auto size = static_cast<std::uint32_t>(made.groups[call.group].size());
  Request& request = call.request;
  request.collective = static_cast<Collective>(draw.below(kNumKinds));
  request.dtype = static_cast<DType>(draw.below(kNumDTypes));
  request.root = draw.number(size);
  request.count = draw_count(draw, kMostBytes / size, request.dtype);
  request.priority = static_cast<int>(draw.below(3));
  call.on_host = request.collective == Collective::kBarrier || draw.one_in(4);
  call.in_place = request.collective == Collective::kBroadcast;
  const bool has_counts = draw.one_in(2);
  switch (request.collective) {
    case Collective::kAllreduce:
    case Collective::kReduce:
      call.in_place = draw.one_in(2);
      [[fallthrough]];
    case Collective::kReduceScatter:
      draw_reduction(draw, made, call);
      break;
    case Collective::kAllGather:
      for (std::uint32_t i = 0; i < size && has_counts; ++i) {
        request.receive_counts.push_back(draw_count(draw, kMostBytes / size, request.dtype));
      }
      break;
    case Collective::kSend:
      call.kind = ScheduledCall::Kind::kMessage;
      call.to = (request.root + 1 + draw.number(size - 1)) % size;
      request.tag = draw.number(3);
      break;
    case kExchange:
      // In one queue, messages in both directions wait for each other.
      call.kind = ScheduledCall::Kind::kExchange;
      call.on_host = call.on_host || made.device.one_queue;
      request.collective = Collective::kAllToAll;
      for (std::uint32_t i = 0; i < size * size; ++i) {
        if (i % size == 0) call.parts.emplace_back();
        call.parts.back().push_back(draw_count(draw, kMostBytes / size, request.dtype));
      }
      break;
    default:
      break;
  }
  return call;
}

void draw_trouble(Draw& draw, Schedule& made) {
  if (!draw.one_in(3)) return;
  using Kind = Trouble::Kind;
  Trouble& trouble = made.trouble;
  trouble.kind = draw.any(
      {Kind::kKill, Kind::kAbort, Kind::kClose, Kind::kLeave, Kind::kCall, Kind::kCommand});
  if (trouble.kind == Kind::kKill && made.network != Schedule::Network::kFake) {
    trouble.kind = Kind::kLeave;
  }
  trouble.group = draw.number(static_cast<std::uint32_t>(made.groups.size()));
  // A receive does not learn that its sender has closed the group and will never send.
  const bool has_messages = std::ranges::any_of(made.calls, [&](const ScheduledCall& call) {
    return call.group == trouble.group && call.kind != ScheduledCall::Kind::kCollective;
  });
  if (trouble.kind == Kind::kClose && has_messages) trouble.kind = Kind::kAbort;
  const auto& ranks = made.groups[trouble.group];
  trouble.rank = ranks[draw.below(ranks.size())];
  trouble.call = draw.below(made.calls.size());
  trouble.device_number = 40 + draw.below(300);
}

}  // namespace

Schedule draw_schedule(std::uint64_t seed) {
  Draw draw(seed);
  Schedule made;
  made.seed = seed;
  made.size = 2 + draw.number(3);
  draw_network(draw, made);
  draw_device(draw, made);
  draw_groups(draw, made);
  for (std::uint64_t left = 1 + draw.below(12); left > 0; --left) {
    made.calls.push_back(draw_call(draw, made));
  }
  draw_trouble(draw, made);
  return made;
}

}  // namespace slipstream::test
