#include "engine/stream_tuner.h"

#include <algorithm>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr Nanoseconds kWindow = 150ms;         // of waiting, which is less than what the clock says
constexpr double kGain = 1.06;                 // more streams must bring this
constexpr double kClearGain = 1.4;             // so much is believed at once
constexpr double kClearLoss = 0.8;             // likewise
constexpr double kLoss = 0.97;                 // fewer may cost this
constexpr double kChange = 1.3;                // the network is another one
constexpr double kKeeps = 0.998;               // of the base, a window
constexpr double kLeastSeconds = 0.02;         // of waiting that a rate is taken of
constexpr std::uint32_t kUsualWindows = 40;    // longer than an operation, which has phases
constexpr std::uint32_t kStrangeWindows = 10;  // in which only other peers waited than before
constexpr std::uint32_t kFirstPatience = 400, kMostPatience = 3200;  // windows between trials

}  // namespace

StreamTuner::StreamTuner(std::uint32_t most, bool is_fixed, std::uint32_t first)
    : most_(most), is_fixed_(is_fixed), count_(is_fixed ? most : std::clamp(first, 1U, most)) {}

void StreamTuner::note(std::uint32_t peer, Nanoseconds time, std::uint64_t bytes) {
  if (is_fixed_ || most_ <= 1) return;
  if (peer >= window_.size()) window_.resize(peer + std::size_t{1});
  window_[peer].seconds += std::chrono::duration<double>(time).count();
  window_[peer].bytes += static_cast<double>(bytes);
}

void StreamTuner::waited(Nanoseconds time) {
  if (is_fixed_ || most_ <= 1) return;
  time_ += time;
  if (time_ >= kWindow) end_window();
}

void StreamTuner::follow(std::uint32_t count) {
  base_count_ = std::clamp(count, 1U, most_);
  use(Trial::kNone, base_count_);
  base_.clear();
  usual_.clear();
  num_usual_ = 0;
  rest_ = kFirstPatience;
}

std::string StreamTuner::take_news() { return std::exchange(news_, {}); }

void StreamTuner::add(Sample& sum, const Sample& other) {
  if (sum.size() < other.size()) sum.resize(other.size());
  for (std::size_t peer = 0; peer < other.size(); ++peer) {
    sum[peer].seconds += other[peer].seconds;
    sum[peer].bytes += other[peer].bytes;
  }
}

void StreamTuner::raise(Sample& best, const Sample& other) {
  if (best.size() < other.size()) best.resize(other.size());
  for (std::size_t peer = 0; peer < other.size(); ++peer) {
    if (other[peer].seconds < kLeastSeconds) continue;
    const bool is_better =
        other[peer].bytes * best[peer].seconds >= best[peer].bytes * other[peer].seconds;
    if (is_better) best[peer] = other[peer];
  }
}

/// How long the base would have taken for what the sample has delivered, divided by what it took;
/// 0 where they have no peer in common.
double StreamTuner::gain(const Sample& sample, const Sample& base) {
  double before = 0, now = 0;
  for (std::size_t peer = 0; peer < std::min(sample.size(), base.size()); ++peer) {
    if (base[peer].bytes <= 0 || sample[peer].seconds <= 0) continue;
    before += sample[peer].bytes * base[peer].seconds / base[peer].bytes;
    now += sample[peer].seconds;
  }
  return now > 0 ? before / now : 0;
}

void StreamTuner::end_window() {
  const Sample window = std::exchange(window_, {});
  time_ = {};
  if (std::exchange(discards_, false)) return;
  judge(window);
}

void StreamTuner::judge(const Sample& window) {
  if (trial_ == Trial::kNone) {
    for (Progress& each : base_) each.bytes *= kKeeps;
    raise(base_, window);
  }
  const double gained = gain(window, base_);
  strange_ = gained > 0 ? 0 : strange_ + 1;
  if (strange_ >= kStrangeWindows && trial_ != Trial::kNone) return settle();
  if (gained <= 0) return;
  const bool is_trial = trial_ == Trial::kMore || trial_ == Trial::kFewer;
  windows_.push_back(window);
  if (windows_.size() < kWindows && !(is_trial && gained <= kClearLoss)) return;
  std::ranges::sort(windows_, {}, [&](const Sample& each) { return gain(each, base_); });
  Sample best;
  for (std::size_t i = 1; i < windows_.size(); ++i) add(best, windows_[i]);
  if (windows_.size() == 1) best = windows_.front();
  windows_.clear();
  switch (trial_) {
    case Trial::kNone:
      return rest_or_begin(best);
    case Trial::kMore:
      return judge_more(best, gain(best, base_));
    case Trial::kConfirm:
      return judge_confirmed(best);
    case Trial::kFewer:
      return judge_fewer(best, gain(best, base_));
  }
}

void StreamTuner::rest_or_begin(const Sample& sample) {
  const bool is_other = is_another_network(sample);
  rest_ -= std::min<std::uint32_t>(rest_, kWindows);
  if (rest_ > 0 && !is_other) return;
  if (is_other) {
    patience_ = 0;
    base_ = sample;
  }
  base_count_ = count_;
  count_ < most_ ? try_more() : try_fewer();
}

/// Slower or faster than after the last trial, for longer than an operation takes.
bool StreamTuner::is_another_network(const Sample& sample) {
  if (num_usual_ < kUsualWindows) {
    add(usual_, sample);
    num_usual_ += kWindows;
    return false;
  }
  const double gained = gain(sample, usual_);
  if (gained <= 0) return false;
  slower_ = gained < 1 / kChange ? slower_ + kWindows : 0;
  faster_ = gained > kChange ? faster_ + kWindows : 0;
  return std::max(slower_, faster_) >= kUsualWindows;
}

/// Twice as many may bring nothing where all of them take the slow one of several paths: four times
/// as many are tried as well.
void StreamTuner::judge_more(const Sample& sample, double gained) {
  if (gained >= kClearGain) return adopt(sample, count_, gained);
  if (gained > more_gain_) {
    more_ = sample;
    more_gain_ = gained;
    more_count_ = count_;
  }
  const bool gains = more_gain_ >= kGain;
  const bool is_hopeful = gained > kClearLoss && (gains || count_ < 4 * base_count_);
  if (count_ < most_ && is_hopeful) return use(Trial::kMore, std::min(most_, count_ * 2));
  if (!gains) return try_fewer();
  use(Trial::kConfirm, base_count_);
}

void StreamTuner::judge_confirmed(const Sample& sample) {
  raise(base_, sample);
  const double gained = gain(more_, base_);
  if (gained < kGain) return try_fewer();
  adopt(Sample(more_), more_count_, gained);
}

void StreamTuner::judge_fewer(const Sample& sample, double gained) {
  if (gained < kLoss) return settle();
  adopt(sample, count_, gained);
}

/// Goes on in the same direction.
void StreamTuner::adopt(const Sample& sample, std::uint32_t count, double gained) {
  news_ = concat(count, " streams carry ", gained, " times what ", base_count_, " did");
  const bool is_more = count > base_count_;
  raise(base_, sample);
  base_count_ = count;
  if (!is_more) return try_fewer();
  count < most_ ? try_more() : settle();
}

void StreamTuner::try_more() {
  more_gain_ = 0;
  use(Trial::kMore, std::min(most_, base_count_ * 2));
}

void StreamTuner::try_fewer() {
  if (base_count_ <= 1) return settle();
  use(Trial::kFewer, base_count_ - 1);
}

void StreamTuner::settle() {
  usual_.clear();
  num_usual_ = slower_ = faster_ = 0;
  patience_ = std::min(kMostPatience, std::max(kFirstPatience, patience_ * 2));
  rest_ = patience_;
  use(Trial::kNone, base_count_);
}

void StreamTuner::use(Trial trial, std::uint32_t count) {
  trial_ = trial;
  count_ = count;
  windows_.clear();
  strange_ = 0;
  discards_ = true;
}

}  // namespace slipstream
