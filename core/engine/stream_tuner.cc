#include "engine/stream_tuner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr Nanoseconds kWindow = 150ms;  // of waiting, which is less than elapsed time
// Windows dropped after a change, until queues are normal again.
constexpr std::uint32_t kDiscarded = 2;
constexpr double kGain = 1.04;      // least gain for which more streams are adopted
constexpr double kClearGain = 1.4;  // a gain that is believed at once
constexpr double kClearLoss = 0.8;  // a loss that is believed at once
constexpr double kLoss = 0.97;      // largest loss that fewer streams may cause
constexpr double kChange = 1.3;     // rates that differ by this factor mean another network
// Value of a report between trials after a change of network; otherwise 1.
constexpr double kOtherNetwork = 2;
constexpr double kUnknownLoss = 1e-9;        // small enough to count as a loss with any weight
constexpr double kKeeps = 0.998;             // factor by which the base fades in each window
constexpr std::uint32_t kUsualWindows = 40;  // longer than an operation, whose phases differ
// Windows in which only other peers waited than before.
constexpr std::uint32_t kStrangeWindows = 10;
constexpr std::uint32_t kFirstPatience = 400, kMostPatience = 3200;  // windows between trials

}  // namespace

std::uint64_t StreamTuner::Plan::packed() const {
  return std::uint64_t{number} << 32U | static_cast<std::uint64_t>(trial) << 24U |
         std::uint64_t{base_count} << 12U | count;
}

StreamTuner::Plan StreamTuner::Plan::unpacked(std::uint64_t bits) {
  constexpr std::uint64_t kCountBits = 0xfff, kTrialBits = 3;
  return {.trial = static_cast<Trial>(bits >> 24U & kTrialBits),
          .count = static_cast<std::uint32_t>(bits & kCountBits),
          .base_count = static_cast<std::uint32_t>(bits >> 12U & kCountBits),
          .number = static_cast<std::uint32_t>(bits >> 32U)};
}

StreamTuner::StreamTuner(std::uint32_t most, bool is_fixed, std::uint32_t first)
    : most_(most), is_fixed_(is_fixed) {
  plan_.count = plan_.base_count = is_fixed ? most : std::clamp(first, 1U, most);
}

std::uint32_t StreamTuner::count() const {
  const bool is_tried = plan_.trial == Trial::kMore || plan_.trial == Trial::kFewer;
  return is_tried ? plan_.count : plan_.base_count;
}

void StreamTuner::note(std::uint32_t peer, Nanoseconds time, std::uint64_t bytes) {
  if (is_fixed_ || most_ <= 1) return;
  window_.note(peer, time, bytes);
}

void StreamTuner::waited(Nanoseconds time) {
  if (is_fixed_ || most_ <= 1) return;
  time_ += time;
  waited_ += std::chrono::duration<double>(time).count();
  if (time_ >= kWindow) end_window();
}

std::optional<StreamTuner::Report> StreamTuner::take_report() {
  return std::exchange(report_, std::nullopt);
}

std::string StreamTuner::take_news() { return std::exchange(news_, {}); }

void StreamTuner::follow(Plan plan) {
  plan.count = std::clamp(plan.count, 1U, most_);
  plan.base_count = std::clamp(plan.base_count, 1U, most_);
  follows_ = true;
  if (plan == plan_) return;
  begin(plan);
  usual_.clear();
  num_usual_ = slower_ = faster_ = 0;
  goes_down_ = false;
  rest_ = kFirstPatience;
  if (plan.trial != Trial::kNone) report_ = Report{plan_.number, 0, base_waited_};
}

void StreamTuner::lead() {
  const bool takes_over = std::exchange(follows_, false);
  if (!takes_over || plan_.trial == Trial::kNone) return;
  settle();
  rest_ = kWindows;  // no trial has given a result yet
}

void StreamTuner::hear(std::uint32_t rank, const Report& report) {
  if (follows_ || is_fixed_ || report.number != plan_.number) return;
  if (plan_.trial != Trial::kNone) return take(outcomes_[rank], report.gain, report.waited);
  rest(++outcomes_[rank].times, report.gain >= kOtherNetwork);
}

void StreamTuner::end_window() {
  const StreamSample window = std::exchange(window_, {});
  time_ = {};
  if (discarded_++ < kDiscarded) return;
  judge(window);
}

void StreamTuner::judge(const StreamSample& window) {
  const bool is_resting = plan_.trial == Trial::kNone;
  if (is_resting) {
    base_.fade(kKeeps);
    base_.raise(window);
  }
  const double gained = window.gain_over(base_);
  strange_ = gained > 0 ? 0 : strange_ + 1;
  if (strange_ >= kStrangeWindows && !is_resting && !follows_) return settle();
  if (gained <= 0 && !base_.empty()) return;
  const bool may_end = plan_.trial == Trial::kMore || plan_.trial == Trial::kFewer;
  windows_.push_back(window);
  const bool is_loss = may_end && !follows_ && gained <= kClearLoss;
  if (windows_.size() < kWindows && !is_loss) return;
  std::ranges::sort(windows_, {}, [&](const auto& each) { return each.gain_over(base_); });
  StreamSample best;
  for (std::size_t i = windows_.size() == 1 ? 0 : 1; i < windows_.size(); ++i) {
    best.add(windows_[i]);
  }
  windows_.clear();
  conclude(best);
}

/// Evaluates the windows of one plan.
void StreamTuner::conclude(const StreamSample& best) {
  double gained = 0;
  if (plan_.trial == Trial::kNone) {
    return conclude_rest(is_another_network(best));
  }
  if (plan_.trial == Trial::kConfirm) {
    base_.raise(best);
    gained = tried_[plan_.count].gain_over(base_);
  } else {
    tried_[plan_.count] = best;
    gained = best.gain_over(base_);
  }
  // The rank never waited before, but does so now.
  if (gained <= 0 && plan_.trial == Trial::kFewer) gained = kUnknownLoss;
  if (!follows_) return take(own_, gained, base_waited_);
  if (gained > 0) report_ = Report{plan_.number, gained, base_waited_};
}

/// Ends a rest. The first report counts if the rest is short; a change of the network counts
/// always.
void StreamTuner::conclude_rest(bool is_other) {
  const std::uint32_t times = ++own_.times;
  if (!follows_) return rest(times, is_other);
  if (times == 1 || is_other) report_ = Report{plan_.number, is_other ? kOtherNetwork : 1, 0};
}

/// Decides once all ranks have reported the plan's result, or one rank has twice, because then the
/// others hardly wait.
void StreamTuner::take(Outcome& outcome, double gain, double waited) {
  outcome.waited = waited;
  if (gain <= 0) return;
  outcome.gain = gain;
  ++outcome.times;
  const bool all_know = own_.times > 0 && std::ranges::all_of(outcomes_, [](const auto& each) {
                          return each.second.times > 0;
                        });
  const double slowest = slowest_gain();
  if (all_know || outcome.times > 1 || slowest <= kClearLoss) decide(slowest);
}

/// The gain of all ranks, from the ranks that have reported: that of the slowest.
double StreamTuner::slowest_gain() const {
  double longest = base_waited_, least = std::numeric_limits<double>::max();
  for (const auto& [rank, outcome] : outcomes_) longest = std::max(longest, outcome.waited);
  const auto count = [&](const Outcome& each) {
    if (each.times == 0) return;
    least = std::min(least, each.waited > 0 ? each.gain * longest / each.waited : each.gain);
  };
  count(own_);
  for (const auto& [rank, outcome] : outcomes_) count(outcome);
  return least;
}

void StreamTuner::decide(double gained) {
  if (plan_.trial == Trial::kMore) return judge_more(gained);
  if (plan_.trial == Trial::kConfirm) return judge_confirmed(gained);
  if (plan_.trial == Trial::kFewer) judge_fewer(gained);
}

/// A rank has waited `times` times for some windows; the longest wait of all ranks counts.
void StreamTuner::rest(std::uint32_t times, bool is_other) {
  if (is_other) patience_ = rest_ = 0;
  if (times > rested_) rest_ -= std::min<std::uint32_t>(rest_, kWindows);
  rested_ = std::max(rested_, times);
  if (rest_ == 0) try_more_or_fewer();
}

void StreamTuner::try_more_or_fewer() {
  plan_.base_count < most_ && !goes_down_ ? try_more() : try_fewer();
}

/// Whether rates have been lower or higher than after the last trial, for longer than an operation
/// takes.
bool StreamTuner::is_another_network(const StreamSample& sample) {
  resting_ = sample;
  if (num_usual_ < kUsualWindows) {
    usual_.add(sample);
    num_usual_ += kWindows;
    return false;
  }
  const double gained = sample.gain_over(usual_);
  if (gained <= 0) return false;
  slower_ = gained < 1 / kChange ? slower_ + kWindows : 0;
  faster_ = gained > kChange ? faster_ + kWindows : 0;
  return std::max(slower_, faster_) >= kUsualWindows;
}

/// Doubling may bring no gain if all streams include the slow one of several paths, so four times
/// as many are tried as well.
void StreamTuner::judge_more(double gained) {
  const std::uint32_t count = plan_.count;
  if (gained >= kClearGain) return adopt(count, gained);
  if (gained > more_gain_ * kGain) {
    more_gain_ = gained;
    more_count_ = count;
  }
  const bool gains = more_gain_ >= kGain;
  const bool is_hopeful = gained > kClearLoss && (gains || count < 4 * plan_.base_count);
  if (count < most_ && is_hopeful) return use(Trial::kMore, std::min(most_, count * 2));
  if (!gains) return try_fewer();
  use(Trial::kConfirm, more_count_);
}

void StreamTuner::judge_confirmed(double gained) {
  gained < kGain ? try_fewer() : adopt(plan_.count, gained);
}

void StreamTuner::judge_fewer(double gained) {
  gained < kLoss ? settle() : adopt(plan_.count, gained);
}

/// Continues in the same direction, once the rank that waits longest knows its gain.
void StreamTuner::adopt(std::uint32_t count, double gained) {
  news_ = concat(count, " streams carry ", gained, " times as much as ", plan_.base_count);
  goes_down_ = count < plan_.base_count || count == most_;
  use(Trial::kNone, count);
  rest_ = kWindows;
}

void StreamTuner::try_more() {
  more_gain_ = 0;
  use(Trial::kMore, std::min(most_, plan_.base_count * 2));
}

void StreamTuner::try_fewer() {
  if (plan_.base_count <= 1) return settle();
  use(Trial::kFewer, plan_.base_count - std::max(1U, plan_.base_count / 4));
}

void StreamTuner::settle() {
  usual_.clear();
  num_usual_ = slower_ = faster_ = 0;
  patience_ = std::min(kMostPatience, std::max(kFirstPatience, patience_ * 2));
  rest_ = patience_;
  goes_down_ = false;
  use(Trial::kNone, plan_.base_count);
}

void StreamTuner::use(Trial trial, std::uint32_t count) {
  const std::uint32_t base_count = trial == Trial::kNone ? count : plan_.base_count;
  begin({trial, count, base_count, plan_.number + 1});
}

void StreamTuner::begin(Plan plan) {
  const bool was_base = plan_.trial == Trial::kNone || plan_.trial == Trial::kConfirm;
  if (was_base) base_waited_ = waited_;
  // Another rank may have noticed earlier that the network has changed.
  const bool is_other = std::max(slower_, faster_) >= kUsualWindows / 2;
  if (plan_.trial == Trial::kNone && is_other) base_ = resting_;
  if (plan.base_count != plan_.base_count) base_.clear();
  if (plan.trial == Trial::kNone) tried_.clear();
  plan_ = plan;
  windows_.clear();
  outcomes_.clear();
  own_ = {};
  rested_ = 0;
  report_.reset();
  waited_ = 0;
  strange_ = 0;
  discarded_ = 0;
}

}  // namespace slipstream
