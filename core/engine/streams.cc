#include <bit>
#include <cmath>

#include "engine/engine.h"

// How many streams carry segments: see stream_tuner.h for the search.
namespace slipstream {
namespace {

constexpr Nanoseconds kAgain = StreamLead::kLead / 10;  // a rank that decides says so

}  // namespace

/// All ranks use the same number: a rank with more streams than others would only take from them at
/// receivers that all send to. One decides, which has waited itself before others did.
void Engine::tune_streams(bool waited) {
  if (options_.fixed_streams) return;
  if (waited) {
    stream_lead_.waited(now_, now_ - last_poll_);
    stream_tuner_.waited(now_ - last_poll_);
  }
  if (!stream_lead_.leads()) return report_streams();
  stream_tuner_.lead();
  const bool is_new = stream_tuner_.plan().number != announced_;
  if (is_new || (waited && now_ >= lead_again_)) announce_streams();
}

void Engine::announce_streams() {
  announced_ = stream_tuner_.plan().number;
  lead_again_ = now_ + kAgain;
  Frame frame;
  frame.kind = FrameKind::kStreams;
  frame.offset = stream_tuner_.plan().packed();
  for (const auto& peer : peers_) {
    if (peer && peer->reachable()) peer->send_control(frame, {});
  }
  use_streams();
}

void Engine::report_streams() {
  const auto report = stream_tuner_.take_report();
  const auto& leader = peers_[stream_lead_.leader()];
  if (!report || !leader->reachable()) return;
  Frame frame;
  frame.kind = FrameKind::kStreamsReport;
  frame.step = report->number;
  frame.offset = std::bit_cast<std::uint64_t>(report->gain);
  frame.sequence = std::bit_cast<std::uint64_t>(report->waited);
  leader->send_control(frame, {});
}

void Engine::use_streams() {
  for (const auto& peer : peers_) {
    if (peer && peer->reachable() && !peer->is_local()) {
      peer->use_streams(stream_tuner_.count());
    }
  }
}

void Engine::on_streams(const Peer& peer, const Frame& frame) {
  if (options_.fixed_streams || !stream_lead_.hears(now_, peer.rank())) return;
  stream_tuner_.follow(StreamTuner::Plan::unpacked(frame.offset));
  announced_ = stream_tuner_.plan().number;
  use_streams();
}

void Engine::on_streams_report(const Peer& peer, const Frame& frame) {
  const auto gain = std::bit_cast<double>(frame.offset);
  const auto waited = std::bit_cast<double>(frame.sequence);
  if (!std::isfinite(gain) || !std::isfinite(waited) || waited < 0) return;
  stream_tuner_.hear(peer.rank(), {frame.step, gain, waited});
}

}  // namespace slipstream
