#include "engine/stream_tuner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr Nanoseconds kWindow = 150ms;  // of waiting, which is less than what the clock says
constexpr double kGain = 1.06;          // more streams must bring this
constexpr double kClearGain = 1.4;      // so much is believed at once
constexpr double kLoss = 0.97;          // fewer may cost this
constexpr double kChange = 1.3;         // the network is another one
constexpr double kForgets = 0.998;      // a window
constexpr std::uint32_t kSlowWindows = 10;
constexpr std::uint32_t kFirstPatience = 200, kMostPatience = 1600;  // windows between trials

double megabits(double bytes_per_second) { return bytes_per_second * 8e-6; }

}  // namespace

StreamTuner::StreamTuner(std::uint32_t most, bool is_fixed, std::uint32_t first)
    : most_(most), is_fixed_(is_fixed), count_(is_fixed ? most : std::clamp(first, 1U, most)) {}

void StreamTuner::waited(Nanoseconds time, std::uint64_t bytes) {
  if (is_fixed_ || most_ <= 1) return;
  time_ += time;
  bytes_ += bytes;
  if (time_ >= kWindow) end_window();
}

void StreamTuner::follow(std::uint32_t count) {
  base_count_ = std::clamp(count, 1U, most_);
  use(Trial::kNone, base_count_);
  base_rate_ = settled_rate_ = 0;
  rest_ = kFirstPatience;
}

std::string StreamTuner::take_news() { return std::exchange(news_, {}); }

void StreamTuner::end_window() {
  const double rate = static_cast<double>(bytes_) / std::chrono::duration<double>(time_).count();
  time_ = {};
  bytes_ = 0;
  if (std::exchange(discards_, false)) return;
  judge(rate);
}

void StreamTuner::judge(double rate) {
  if (rates_.size() == kWindows) rates_.erase(rates_.begin());
  rates_.push_back(rate);
  const bool is_clear = trial_ == Trial::kMore && rate >= base_rate_ * kClearGain;
  if (rates_.size() < kWindows && !is_clear) return;
  const double sum = std::accumulate(rates_.begin(), rates_.end(), 0.0);
  const double usual = is_clear ? rate : (sum - *std::ranges::min_element(rates_)) / (kWindows - 1);
  switch (trial_) {
    case Trial::kNone:
      return rest_or_begin(usual);
    case Trial::kMore:
      return judge_more(usual);
    case Trial::kConfirm:
      return judge_confirmed(usual);
    case Trial::kFewer:
      return judge_fewer(usual);
  }
}

/// What the number in use can carry is the best that it did: less at times, as receivers are
/// crowded and operations end, is no reason to bid for more.
void StreamTuner::rest_or_begin(double usual) {
  slow_windows_ = usual < base_rate_ / kChange ? slow_windows_ + 1 : 0;
  const bool changed = slow_windows_ == kSlowWindows || usual > settled_rate_ * kChange;
  base_rate_ = slow_windows_ == kSlowWindows ? usual : std::max(base_rate_ * kForgets, usual);
  if (rest_ > 0 && !(changed && settled_rate_ > 0)) {
    --rest_;
    return;
  }
  if (changed) patience_ = 0;
  base_count_ = count_;
  count_ < most_ ? try_more() : try_fewer();
}

/// Twice as many may bring nothing where all of them take the slow one of several paths: four times
/// as many are tried as well.
void StreamTuner::judge_more(double rate) {
  if (rate >= base_rate_ * kClearGain) return adopt_more(count_, rate);
  if (rate > more_rate_) {
    more_rate_ = rate;
    more_count_ = count_;
  }
  const bool gains = more_rate_ >= base_rate_ * kGain;
  if (count_ < most_ && (gains || count_ < 4 * base_count_))
    return use(Trial::kMore, std::min(most_, count_ * 2));
  if (!gains) return try_fewer();
  use(Trial::kConfirm, base_count_);
}

void StreamTuner::judge_confirmed(double rate) {
  base_rate_ = std::max(base_rate_, rate);
  if (more_rate_ < base_rate_ * kGain) return try_fewer();
  adopt_more(more_count_, more_rate_);
}

void StreamTuner::judge_fewer(double rate) {
  if (rate < base_rate_ * kLoss) return settle(base_rate_);
  news_ =
      concat(count_, " streams carry as much as ", base_count_, ": ", megabits(rate), " Mbit/s");
  base_count_ = count_;
  try_fewer();
}

void StreamTuner::adopt_more(std::uint32_t count, double rate) {
  news_ = concat(count, " streams carry ", megabits(rate), " Mbit/s, ", base_count_, " carried ",
                 megabits(base_rate_));
  base_rate_ = rate;
  base_count_ = count;
  count < most_ ? try_more() : settle(rate);
}

void StreamTuner::try_more() {
  more_rate_ = 0;
  use(Trial::kMore, std::min(most_, base_count_ * 2));
}

void StreamTuner::try_fewer() {
  if (base_count_ <= 1) return settle(base_rate_);
  use(Trial::kFewer, base_count_ - 1);
}

void StreamTuner::settle(double rate) {
  base_rate_ = settled_rate_ = rate;
  slow_windows_ = 0;
  patience_ = std::min(kMostPatience, std::max(kFirstPatience, patience_ * 2));
  rest_ = patience_;
  use(Trial::kNone, base_count_);
}

void StreamTuner::use(Trial trial, std::uint32_t count) {
  trial_ = trial;
  count_ = count;
  rates_.clear();
  discards_ = true;
}

}  // namespace slipstream
