#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace slipstream {

/// How many streams to each peer carry segments. It doubles their number while more is delivered,
/// then tries fewer; looks again after a while, and soon when rates have changed. So a network that
/// caps each flow is filled, and one that suffers from many flows gets few.
///
/// Only the time counts in which segments to a peer wait for a stream, that is while the network is
/// the limit; and what is delivered to a peer is compared with the most that was delivered to that
/// peer before. So it is no gain that an operation goes on with peers that are nearer, or that an
/// uplink is idle for a while, and what one peer gains at the expense of others is none either.
/// Gains are taken of three windows, of which the worst does not count; a small one has to show
/// against what was in use both before and after. Pure arithmetic: no clock.
class StreamTuner {
 public:
  static constexpr std::uint32_t kFirstCount = 1;

  /// `most`: at least 1. `is_fixed`: so many are used and nothing is tried; else `first` at first.
  StreamTuner(std::uint32_t most, bool is_fixed, std::uint32_t first = kFirstCount);

  [[nodiscard]] std::uint32_t count() const { return count_; }
  /// For `time` segments to a peer have waited for streams; `bytes` were delivered to it meanwhile.
  void note(std::uint32_t peer, Nanoseconds time, std::uint64_t bytes);
  /// For `time` segments to any peer have waited, as noted before. May change count().
  void waited(Nanoseconds time);
  /// Another rank has decided.
  void follow(std::uint32_t count);
  /// What was decided since the last call, in words; empty if nothing.
  [[nodiscard]] std::string take_news();

 private:
  enum class Trial : std::uint8_t { kNone, kMore, kConfirm, kFewer };
  static constexpr std::size_t kWindows = 3;

  struct Progress {
    double seconds = 0, bytes = 0;
  };
  using Sample = std::vector<Progress>;  // by peer

  static void add(Sample& sum, const Sample& other);
  static void raise(Sample& best, const Sample& other);
  static double gain(const Sample& sample, const Sample& base);

  void end_window();
  void judge(const Sample& sample);
  void rest_or_begin(const Sample& sample);
  bool is_another_network(const Sample& sample);
  void judge_more(const Sample& sample, double gained);
  void judge_confirmed(const Sample& sample);
  void judge_fewer(const Sample& sample, double gained);
  void adopt(const Sample& sample, std::uint32_t count, double gained);
  void try_more();
  void try_fewer();
  void settle();
  void use(Trial trial, std::uint32_t count);

  const std::uint32_t most_;
  const bool is_fixed_;
  std::uint32_t count_;
  Sample window_;
  Nanoseconds time_{};           // of this window
  bool discards_ = true;         // the first window after a change fills the kernel's buffers
  std::vector<Sample> windows_;  // the last ones with this count
  Trial trial_ = Trial::kNone;
  Sample base_;           // the best window of each peer with what is in use between trials
  Sample usual_;          // the first ones after the last trial
  Sample more_;           // of a trial that is to be confirmed
  double more_gain_ = 0;  // of that
  std::uint32_t num_usual_ = 0, slower_ = 0, faster_ = 0;  // windows in a row, than usual
  std::uint32_t base_count_ = 0, more_count_ = 0, patience_ = 0, strange_ = 0;
  std::uint32_t rest_ = 4;  // windows until the next trial
  std::string news_;
};

}  // namespace slipstream
