#include "engine/stream_tuner.h"

#include <algorithm>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::uint32_t kFirstCount = 2;
constexpr Nanoseconds kWindow = 100ms;  // of waiting, which is less than what the clock says
constexpr double kGain = 1.06;          // more streams must bring this
constexpr double kLoss = 0.97;          // fewer may cost this
constexpr double kChange = 1.3;         // the network is another one
constexpr std::uint32_t kFirstPatience = 16, kMostPatience = 256;  // windows between trials

double megabits(double bytes_per_second) { return bytes_per_second * 8e-6; }

}  // namespace

StreamTuner::StreamTuner(std::uint32_t most, bool is_fixed)
    : most_(most), is_fixed_(is_fixed), count_(is_fixed ? most : std::min(kFirstCount, most)) {}

void StreamTuner::waited(Nanoseconds time, std::uint64_t bytes) {
  if (is_fixed_ || most_ <= 1) return;
  time_ += time;
  bytes_ += bytes;
  if (time_ >= kWindow) end_window();
}

std::string StreamTuner::take_news() { return std::exchange(news_, {}); }

void StreamTuner::end_window() {
  if (discards_) return begin_window(false);
  judge(static_cast<double>(bytes_) / std::chrono::duration<double>(time_).count());
}

void StreamTuner::judge(double rate) {
  const std::uint32_t count = count_;
  switch (trial_) {
    case Trial::kNone: {
      const bool changed =
          base_rate_ > 0 && (rate > base_rate_ * kChange || rate < base_rate_ / kChange);
      base_rate_ = base_rate_ == 0 || changed ? rate : base_rate_ * 0.75 + rate * 0.25;
      if (changed) patience_ = kFirstPatience;
      if (!changed && rest_ > 0) {
        --rest_;
        return begin_window(false);
      }
      base_count_ = count;
      return count < most_ ? try_more() : try_fewer();
    }
    case Trial::kMore:
      if (rate < base_rate_ * kGain) {
        count_ = base_count_;
        return base_count_ > 1 ? try_fewer() : settle(base_rate_);
      }
      news_ = concat(count, " streams carry ", megabits(rate), " Mbit/s, ", base_count_,
                     " carried ", megabits(base_rate_));
      base_rate_ = rate;
      base_count_ = count;
      return count < most_ ? try_more() : settle(rate);
    case Trial::kFewer:
      if (rate < base_rate_ * kLoss) {
        count_ = base_count_;
        return settle(base_rate_);
      }
      news_ =
          concat(count, " streams carry as much as ", base_count_, ": ", megabits(rate), " Mbit/s");
      base_count_ = count;
      return count > 1 ? try_fewer() : settle(rate);
  }
}

void StreamTuner::try_more() {
  trial_ = Trial::kMore;
  count_ = std::min(most_, base_count_ * 2);
  begin_window(true);
}

void StreamTuner::try_fewer() {
  if (base_count_ <= 1) return settle(base_rate_);
  trial_ = Trial::kFewer;
  count_ = base_count_ - 1;
  begin_window(true);
}

void StreamTuner::settle(double rate) {
  trial_ = Trial::kNone;
  base_rate_ = rate;
  patience_ = std::min(kMostPatience, std::max(kFirstPatience, patience_ * 2));
  rest_ = patience_;
  begin_window(true);
}

void StreamTuner::begin_window(bool discards) {
  discards_ = discards;
  time_ = {};
  bytes_ = 0;
}

}  // namespace slipstream
