#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace slipstream {

/// How many streams to each peer carry segments. It doubles their number while the rate of all
/// peers together rises, then tries fewer; looks again after a while, and at once when the rate has
/// changed. So a network that caps each flow is filled, and one that suffers from many flows gets
/// few. What one peer alone would gain is no reason: it would be at the others' expense.
///
/// Rates count only while segments wait for a stream, that is while the network is the limit. Pure
/// arithmetic: no clock.
class StreamTuner {
 public:
  /// `most`: at least 1. `is_fixed`: so many are used and nothing is tried.
  StreamTuner(std::uint32_t most, bool is_fixed);

  [[nodiscard]] std::uint32_t count() const { return count_; }
  /// For `time` segments have waited for streams; then `bytes` were taken. May change count().
  void waited(Nanoseconds time, std::uint64_t bytes);
  /// What was decided since the last call, in words; empty if nothing.
  [[nodiscard]] std::string take_news();

 private:
  enum class Trial : std::uint8_t { kNone, kMore, kFewer };

  void end_window();
  void judge(double rate);
  void try_more();
  void try_fewer();
  void settle(double rate);
  void begin_window(bool discards);

  const std::uint32_t most_;
  const bool is_fixed_;
  std::uint32_t count_;
  std::uint64_t bytes_ = 0;  // in this window
  Nanoseconds time_{};
  bool discards_ = true;  // the first window after a change fills the kernel's buffers
  Trial trial_ = Trial::kNone;
  double base_rate_ = 0;  // bytes a second, of what is in use between trials
  std::uint32_t base_count_ = 0, rest_ = 0, patience_ = 0;
  std::string news_;
};

}  // namespace slipstream
