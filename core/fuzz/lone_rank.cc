#include "fuzz/lone_rank.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace slipstream::fuzz {
namespace {

constexpr std::uint64_t kEagerBytes = 1024, kSegmentBytes = 4096;
// Elements of float32: eager, in one segment, in several, and enough for a codec.
constexpr std::array<std::uint64_t, 5> kCounts{0, 3, 300, 3000, 9000};

std::vector<Place> places() { return {{"a", ""}, {"b", ""}, {"c", ""}}; }

World make_world() {
  Identity identity{.rank = LoneRank::kSelf, .world_size = LoneRank::kSize, .epoch = 3};
  EngineOptions options;
  options.segment_bytes = 16 * kSegmentBytes;  // enough for a block of every codec
  options.eager_bytes = kEagerBytes;
  options.eager_pool_bytes = 4 * kEagerBytes;
  return {
      .identity = identity, .options = options, .log = Log([](LogLevel, const std::string&) {})};
}

}  // namespace

bool HoldingLink::send(std::uint32_t stream, const Frame& frame,
                       std::span<const std::byte> payload) {
  expect(frame.length == payload.size());
  if (!ready(stream)) return false;
  Stream& sender = streams_[stream];
  if (copies_ || input_.coin()) {
    read(payload);
  } else {
    sender.holds = true;
    sender.payload = payload;
  }
  return true;
}

void HoldingLink::forget(std::span<const std::byte> memory) {
  for (Stream& stream : streams_) {
    const auto begin = stream.payload.data();
    const bool overlaps = !memory.empty() && begin < memory.data() + memory.size() &&
                          memory.data() < begin + stream.payload.size();
    if (!overlaps) continue;
    stream.owned.assign(stream.payload.begin(), stream.payload.end());
    stream.payload = stream.owned;
  }
}

void HoldingLink::give_up() {
  for (std::uint32_t stream = 0; stream < kStreams; ++stream) lose(stream);
}

void HoldingLink::drain() {
  for (Stream& stream : streams_) {
    read(stream.payload);
    stream.payload = {};
    stream.holds = false;
  }
}

void HoldingLink::read(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) sum_ += static_cast<std::uint64_t>(byte);
}

LoneRank::LoneRank(Input& input)
    : input_(input),
      world_(make_world()),
      operations_(world_),
      failures_(world_, operations_),
      messages_(world_, operations_, failures_),
      streams_(world_),
      receiver_(world_, operations_, failures_, messages_, streams_) {
  world_.host_names = {"a", "b", "c"};
  world_.places = places();
  world_.now = Clock::now();
  const bool copies = input_.below(4) == 3;
  links_.resize(kSize);
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    world_.peers.push_back(rank == kSelf ? nullptr
                                         : std::make_unique<Peer>(rank, world_.identity.epoch,
                                                                  operations_, world_.stats));
  }
  group_ = std::make_shared<Group>("world", 7, std::vector<std::uint32_t>{0, 1, 2}, kSelf, kSize,
                                   make_layout(places(), kSelf));
  world_.groups[7] = group_;
  world_.closed_groups[8] = 2;
  for (const std::uint32_t rank : {0U, 2U}) {
    links_[rank] = std::make_unique<HoldingLink>(input_, copies);
    receiver_.connected(rank, *links_[rank]);
  }
}

LoneRank::~LoneRank() {
  group_->running.clear();
  group_->uncredited.clear();
  group_->unpooled.clear();
  group_->sending.clear();
  group_->receiving.clear();
  group_->receives.clear();
}

Request LoneRank::choose_request() {
  Request request;
  request.collective = static_cast<Collective>(input_.below(11));
  request.dtype = DType::kFloat32;
  request.count = kCounts[input_.below(kCounts.size())];
  request.root = input_.below(kSize);
  request.tag = input_.below(2);
  if (input_.below(4) == 0) request.codec = static_cast<Codec>(input_.below(kNumCodecs));
  if (request.collective == Collective::kReceive && input_.coin()) request.root = kAnyPeer;
  return request;
}

void LoneRank::submit() {
  Request request = choose_request();
  const std::uint64_t bytes = request.count * sizeof(float) * kSize;  // enough for any collective
  Owned owned{nullptr, std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
  request.input = owned.input.data();
  request.output = owned.output.data();
  try {
    const Shape shape = shape_of(request, *group_);
    auto plan = group_->plan_for(shape, Algorithm::kAuto);
    const Codec codec = plan->codec;
    const std::uint64_t segment =
        codec == Codec::kNone ? kSegmentBytes : codec_block(codec) * sizeof(float);
    owned.operation = std::make_shared<Operation>(request, std::move(plan), group_, segment);
  } catch (const Error&) {
    return;  // a call that is wrong on this rank
  }
  const auto operation = owned.operation;
  owned_.push_back(std::move(owned));
  operation->set_order(next_order_++);
  if (!operation->is_point_to_point()) operation->set_sequence(group_->next_sequence++);
  operation->submitted = world_.now;
  operation->deadline = world_.now + 60s;
  operations_.note_submitted();
  start(operation);
}

void LoneRank::start(const std::shared_ptr<Operation>& operation) {
  operations_.note_started();
  operation->started = operation->progressed = world_.now;
  operation->report_at = operation->started + 10s;
  const bool single = operation->is_point_to_point();
  if (!single) {
    group_->started = std::max(group_->started, operation->sequence() + 1);
    group_->remember(*operation);
  }
  const bool failed =
      single ? group_->failure.has_value() : operation->sequence() >= group_->failed_from;
  if (failed) return operations_.fail(operation, *group_->failure);
  if (operation->request().collective == Collective::kSend) return messages_.start_send(operation);
  if (single) return messages_.start_receive(operation);
  operations_.admit(operation);
  if (group_->mismatch && group_->mismatch->sequence == operation->sequence()) {
    return failures_.tell_mismatch(*group_, describe(operation->request()));
  }
  operations_.begin(operation);
  receiver_.deliver_early(operation);
  if (operation->completion()->done()) return;
  if (const auto cause = operations_.why_forsaken(*operation)) {
    failures_.fail_group(*group_, *cause, true, operation->sequence());
  }
}

/// A frame for a step of an operation in flight, as the peer would send it.
Frame LoneRank::fitting_frame(std::uint32_t peer) {
  Frame frame = world_.frame_for(FrameKind::kSegment, *group_, 0);
  std::vector<const Operation*> all;
  for (const Owned& owned : owned_) all.push_back(owned.operation.get());
  if (all.empty()) return frame;
  const Operation& operation = *all[input_.below(static_cast<std::uint32_t>(all.size()))];
  frame.sequence = operation.sequence();
  frame.fingerprint = group_->fingerprint(operation.request(), peer);
  const auto& steps = operation.plan().steps;
  if (steps.empty()) return frame;
  const std::uint32_t index = input_.below(static_cast<std::uint32_t>(steps.size()));
  const std::uint32_t segment = input_.below(operation.num_segments(index));
  const bool is_small = steps[index].to.bytes <= kEagerBytes;
  frame.step = steps[index].tag;
  frame.offset = segment * operation.segment_bytes();
  frame.length = static_cast<std::uint32_t>(operation.incoming_bytes(index, segment));
  if (operation.is_point_to_point()) {
    frame.flags = kPointToPoint;
    frame.sequence = input_.below(4);
    const std::uint64_t whole = steps[index].to.bytes;
    frame.step = is_small || input_.coin() ? operation.request().tag : 0;
    frame.kind = is_small ? FrameKind::kEager : FrameKind::kSegment;
    if (!is_small && input_.coin()) frame.kind = FrameKind::kRequest;
    if (frame.kind != FrameKind::kSegment) frame.offset = whole;
    if (frame.kind == FrameKind::kRequest) frame.length = 0;
  } else if (is_small) {
    frame.kind = FrameKind::kEager;
  }
  return frame;
}

Frame LoneRank::choose_frame(std::uint32_t peer) {
  Frame frame = fitting_frame(peer);
  const std::uint32_t changes = input_.number<std::uint8_t>();
  if (changes >= 128) return frame;
  if ((changes & 1U) != 0) {
    frame.kind = static_cast<FrameKind>(1 + input_.below(static_cast<int>(kLastFrameKind)));
    frame.length = std::min(frame.length, 64U);
  }
  if ((changes & 2U) != 0) frame.flags = static_cast<std::uint8_t>(input_.below(8));
  if ((changes & 4U) != 0) frame.length = input_.number<std::uint16_t>() % (2 * kSegmentBytes);
  if ((changes & 8U) != 0) frame.group = 6 + input_.below(3);
  if ((changes & 16U) != 0) frame.sequence = input_.number<std::uint8_t>();
  if ((changes & 32U) != 0) frame.offset = input_.number<std::uint64_t>();
  if ((changes & 64U) != 0) {
    frame.stream = input_.number<std::uint8_t>();
    frame.step = input_.number<std::uint32_t>();
    frame.fingerprint = input_.number<std::uint64_t>();
    frame.epoch = 3 + (input_.below(16) == 1 ? 1U : 0U);
  }
  return frame;
}

/// Calls the receiver as the reader of a stream does.
void LoneRank::deliver() {
  const std::uint32_t peer = choose_peer();
  Frame frame = choose_frame(peer);
  const bool numbered = frame.kind != FrameKind::kSegment && frame.kind != FrameKind::kAck &&
                        frame.kind != FrameKind::kHeartbeat;
  if (numbered) frame.control = next_control_[peer]++;
  if (frame.kind == FrameKind::kAck) {
    frame.stream = static_cast<std::uint16_t>(frame.stream % HoldingLink::kStreams);
    frame.sequence = 0;
    frame.offset = frame.offset % 64;
  }
  frame.ack = input_.below(16);
  std::vector<std::byte> own = input_.bytes(std::min(frame.length, 64U));
  own.resize(frame.length);
  std::span<const std::byte> payload = own;
  const bool copies = world_.peers[peer]->is_local();
  if (frame.length > 0 && !copies) {
    if (std::byte* const place = receiver_.place(peer, frame); place != nullptr) {
      std::memcpy(place, own.data(), own.size());
      payload = {place, own.size()};
    }
  }
  receiver_.arrived(peer, input_.below(HoldingLink::kStreams), frame, payload);
}

void LoneRank::disturb() {
  const std::uint32_t peer = choose_peer();
  const std::uint32_t stream = input_.below(HoldingLink::kStreams);
  HoldingLink& link = *links_[peer];
  switch (input_.below(8)) {
    case 0:
      if (!link.alive(stream)) break;
      link.lose(stream);
      receiver_.stream_lost(peer, stream, "was cut");
      break;
    case 1:
      if (link.alive(stream) || world_.peers[peer]->gone()) break;
      link.open(stream);
      receiver_.stream_opened(peer, stream);
      break;
    case 2:
      world_.now += std::chrono::milliseconds(100) * input_.number<std::uint8_t>();
      failures_.tick();
      break;
    default:
      for (const std::uint32_t rank : {0U, 2U}) links_[rank]->drain();
  }
}

void LoneRank::turn() {
  for (const auto& peer : world_.peers) {
    if (!peer || !peer->reachable()) continue;
    peer->take_delivered();
    if (peer->has_unsent()) peer->pump(world_.now);
    peer->send_acknowledgements(false);
  }
  std::erase_if(owned_, [](const Owned& each) { return each.operation->completion()->done(); });
}

std::uint64_t LoneRank::sum() const { return links_[0]->sum() + links_[2]->sum(); }

}  // namespace slipstream::fuzz
