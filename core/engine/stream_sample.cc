#include "engine/stream_sample.h"

#include <algorithm>

namespace slipstream {
namespace {

constexpr double kLeastSeconds = 0.02;  // waiting time below which no rate is computed

}  // namespace

void StreamSample::note(std::uint32_t peer, Nanoseconds time, std::uint64_t bytes) {
  if (peer >= by_peer_.size()) by_peer_.resize(peer + std::size_t{1});
  by_peer_[peer].seconds += std::chrono::duration<double>(time).count();
  by_peer_[peer].bytes += static_cast<double>(bytes);
}

void StreamSample::add(const StreamSample& other) {
  if (by_peer_.size() < other.by_peer_.size()) by_peer_.resize(other.by_peer_.size());
  for (std::size_t peer = 0; peer < other.by_peer_.size(); ++peer) {
    by_peer_[peer].seconds += other.by_peer_[peer].seconds;
    by_peer_[peer].bytes += other.by_peer_[peer].bytes;
  }
}

void StreamSample::raise(const StreamSample& other) {
  if (by_peer_.size() < other.by_peer_.size()) by_peer_.resize(other.by_peer_.size());
  for (std::size_t peer = 0; peer < other.by_peer_.size(); ++peer) {
    const Progress& its = other.by_peer_[peer];
    Progress& best = by_peer_[peer];
    if (its.seconds < kLeastSeconds) continue;
    if (its.bytes * best.seconds >= best.bytes * its.seconds) best = its;
  }
}

void StreamSample::fade(double factor) {
  for (Progress& each : by_peer_) each.bytes *= factor;
}

double StreamSample::gain_over(const StreamSample& base) const {
  double before = 0, now = 0;
  for (std::size_t peer = 0; peer < std::min(by_peer_.size(), base.by_peer_.size()); ++peer) {
    const Progress &its = by_peer_[peer], &was = base.by_peer_[peer];
    if (was.bytes <= 0 || its.seconds <= 0) continue;
    before += its.bytes * was.seconds / was.bytes;
    now += its.seconds;
  }
  return now > 0 ? before / now : 0;
}

}  // namespace slipstream
