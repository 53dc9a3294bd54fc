#include "engine/stream_control.h"

#include <bit>
#include <cmath>

namespace slipstream {
namespace {

// Interval at which the leader repeats that it decides.
constexpr Nanoseconds kAgain = StreamLead::kLead / 10;

}  // namespace

StreamControl::StreamControl(World& world)
    : world_(world),
      tuner_(world.options.most_streams, world.options.fixed_streams, world.options.first_streams),
      lead_(world.identity.rank) {}

void StreamControl::note(const Peer& peer, std::uint64_t delivered) {
  tuner_.note(peer.rank(), world_.now - world_.last_poll, delivered);
}

/// All ranks use the same number, because a rank with more streams than others would only take
/// bandwidth from them at receivers to which all send. The leader, which has waited before the
/// others did, decides.
void StreamControl::tune(bool waited) {
  if (world_.options.fixed_streams) return;
  if (waited) {
    lead_.waited(world_.now, world_.now - world_.last_poll);
    tuner_.waited(world_.now - world_.last_poll);
  }
  if (!lead_.leads()) return report();
  tuner_.lead();
  const bool is_new = tuner_.plan().number != announced_;
  if (is_new || (waited && world_.now >= lead_again_)) announce();
}

void StreamControl::announce() {
  announced_ = tuner_.plan().number;
  lead_again_ = world_.now + kAgain;
  Frame frame;
  frame.kind = FrameKind::kStreams;
  frame.offset = tuner_.plan().packed();
  for (const auto& peer : world_.peers) {
    if (peer && peer->reachable()) peer->send_control(frame, {});
  }
  use();
}

void StreamControl::report() {
  const auto report = tuner_.take_report();
  const auto& leader = world_.peers[lead_.leader()];
  if (!report || !leader->reachable()) return;
  Frame frame;
  frame.kind = FrameKind::kStreamsReport;
  frame.step = report->number;
  frame.offset = std::bit_cast<std::uint64_t>(report->gain);
  frame.sequence = std::bit_cast<std::uint64_t>(report->waited);
  leader->send_control(frame, {});
}

void StreamControl::use() {
  for (const auto& peer : world_.peers) {
    if (peer && peer->reachable() && !peer->is_local()) {
      peer->use_streams(tuner_.count());
    }
  }
}

void StreamControl::on_plan(const Peer& peer, const Frame& frame) {
  if (world_.options.fixed_streams || !lead_.hears(world_.now, peer.rank())) return;
  tuner_.follow(StreamTuner::Plan::unpacked(frame.offset));
  announced_ = tuner_.plan().number;
  use();
}

void StreamControl::on_report(const Peer& peer, const Frame& frame) {
  const auto gain = std::bit_cast<double>(frame.offset);
  const auto waited = std::bit_cast<double>(frame.sequence);
  if (!std::isfinite(gain) || !std::isfinite(waited) || waited < 0) return;
  tuner_.hear(peer.rank(), {frame.step, gain, waited});
}

}  // namespace slipstream
