#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace slipstream {

/// How many streams to each peer carry segments. It doubles their number while the rate of all
/// peers together rises, then tries fewer; looks again after a while, and soon when the rate has
/// changed. So a network that caps each flow is filled, and one that suffers from many flows gets
/// few. What one peer alone would gain is no reason: it would be at the others' expense.
///
/// Rates count only while segments wait for a stream, that is while the network is the limit. They
/// are taken of three windows, of which the worst does not count (an operation ends in it, say); a
/// small gain has to show against what was in use both before and after. Pure arithmetic: no clock.
class StreamTuner {
 public:
  static constexpr std::uint32_t kFirstCount = 1;

  /// `most`: at least 1. `is_fixed`: so many are used and nothing is tried; else `first` at first.
  StreamTuner(std::uint32_t most, bool is_fixed, std::uint32_t first = kFirstCount);

  [[nodiscard]] std::uint32_t count() const { return count_; }
  /// For `time` segments have waited for streams; `bytes` were delivered. May change count().
  void waited(Nanoseconds time, std::uint64_t bytes);
  /// Another rank has decided.
  void follow(std::uint32_t count);
  /// What was decided since the last call, in words; empty if nothing.
  [[nodiscard]] std::string take_news();

 private:
  enum class Trial : std::uint8_t { kNone, kMore, kConfirm, kFewer };
  static constexpr std::size_t kWindows = 3;

  void end_window();
  void judge(double rate);
  void rest_or_begin(double usual);
  void judge_more(double rate);
  void judge_confirmed(double rate);
  void judge_fewer(double rate);
  void adopt_more(std::uint32_t count, double rate);
  void try_more();
  void try_fewer();
  void settle(double rate);
  void use(Trial trial, std::uint32_t count);

  const std::uint32_t most_;
  const bool is_fixed_;
  std::uint32_t count_;
  std::uint64_t bytes_ = 0;  // in this window
  Nanoseconds time_{};
  bool discards_ = true;       // the first window after a change fills the kernel's buffers
  std::vector<double> rates_;  // bytes a second, of the last windows with this count
  Trial trial_ = Trial::kNone;
  double base_rate_ = 0;     // the best of what is in use between trials
  double settled_rate_ = 0;  // what it was after the last trial
  double more_rate_ = 0;     // of a trial that is to be confirmed
  std::uint32_t base_count_ = 0, more_count_ = 0, patience_ = 0, slow_windows_ = 0;
  std::uint32_t rest_ = 4;  // windows until the next trial
  std::string news_;
};

}  // namespace slipstream
