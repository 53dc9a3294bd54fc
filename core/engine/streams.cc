#include "engine/engine.h"

// How many streams carry segments: see stream_tuner.h for the search.
namespace slipstream {
namespace {

constexpr Nanoseconds kLead = 10s;  // of a rank that tunes, after it has last said so
constexpr Nanoseconds kWaitingWindow = 1s;

}  // namespace

/// The share of the time in which segments waited, of about a second.
void Engine::note_waiting(bool waited) {
  if (waited) waited_ += now_ - last_poll_;
  const Nanoseconds passed = now_ - waiting_since_;
  if (passed < kWaitingWindow) return;
  waiting_permille_ = static_cast<std::uint64_t>(1000 * waited_ / passed);
  waiting_since_ = now_;
  waited_ = {};
}

/// All ranks use the same number, that of the one that waits most: a rank with more streams than
/// others would only take from them at receivers that all send to, and one that is starved has
/// nothing to judge by.
bool Engine::tunes_streams() const { return !options_.fixed_streams && now_ >= led_until_; }

void Engine::tune_streams() {
  const std::uint32_t before = stream_tuner_.count();
  stream_tuner_.waited(now_ - last_poll_);
  if (stream_tuner_.count() == before && now_ < lead_again_) return;
  lead_again_ = now_ + kLead / 10;
  Frame frame;
  frame.kind = FrameKind::kStreams;
  frame.offset = stream_tuner_.count();
  frame.sequence = waiting_permille_;
  for (const auto& peer : peers_) {
    if (peer && peer->reachable()) peer->send_control(frame, {});
  }
  use_streams();
}

void Engine::use_streams() {
  for (const auto& peer : peers_) {
    if (peer && peer->reachable() && !peer->is_local()) {
      peer->use_streams(stream_tuner_.count());
    }
  }
}

void Engine::on_streams(const Peer& peer, const Frame& frame) {
  const std::uint64_t theirs = frame.sequence, ours = waiting_permille_;
  const bool leads = peer.rank() < identity_.rank ? 2 * theirs >= ours : theirs > 2 * ours;
  if (options_.fixed_streams || !leads) return;
  led_until_ = now_ + kLead;
  stream_tuner_.follow(static_cast<std::uint32_t>(frame.offset));
  use_streams();
}

}  // namespace slipstream
