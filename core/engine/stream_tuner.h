#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/stream_sample.h"

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
///
/// All ranks use the same number, and one of them decides. The others take part in its trials and
/// report: at the begin for how long they have waited before, then what came of it where they are.
/// Ranks of a collective wait for one another, and all get what the slowest gets: of one that had
/// waited for all of the time, what it gains; one that had waited for half of it could lose half.
class StreamTuner {
 public:
  static constexpr std::uint32_t kFirstCount = 1;

  enum class Trial : std::uint8_t { kNone, kMore, kConfirm, kFewer };
  /// What all ranks are to do.
  struct Plan {
    Trial trial = Trial::kNone;
    std::uint32_t count = 1;       ///< that is tried, or (kConfirm) was
    std::uint32_t base_count = 1;  ///< that was in use before, and is in kNone and kConfirm
    std::uint32_t number = 0;      ///< of the plan

    bool operator==(const Plan&) const = default;
    /// In 64 bits, and back.
    [[nodiscard]] std::uint64_t packed() const;
    static Plan unpacked(std::uint64_t bits);
  };
  /// What came of a plan at a rank.
  struct Report {
    std::uint32_t number = 0;  ///< of the plan
    double gain = 0;           ///< 0: not known yet
    double waited = 0;         ///< seconds with what was in use before
  };

  /// `most`: at least 1. `is_fixed`: so many are used and nothing is tried; else `first` at first.
  StreamTuner(std::uint32_t most, bool is_fixed, std::uint32_t first = kFirstCount);

  [[nodiscard]] std::uint32_t count() const;
  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// For `time` segments to a peer have waited for streams; `bytes` were delivered to it meanwhile.
  void note(std::uint32_t peer, Nanoseconds time, std::uint64_t bytes);
  /// For `time` segments to any peer have waited, as noted before. May change plan() or, where
  /// another rank decides, make a report.
  void waited(Nanoseconds time);

  /// Another rank decides from now on, and this is its plan.
  void follow(Plan plan);
  /// This rank decides from now on; a trial of another's ends.
  void lead();
  /// Another rank reports; where this one decides, it counts. May change plan().
  void hear(std::uint32_t rank, const Report& report);
  /// To be sent to the rank that decides.
  std::optional<Report> take_report();
  /// What was decided since the last call, in words; empty if nothing.
  [[nodiscard]] std::string take_news();

 private:
  static constexpr std::size_t kWindows = 3;

  /// What came of a plan at a rank, as far as this one knows.
  struct Outcome {
    double gain = 0, waited = 0;
    std::uint32_t times = 0;  // that it was told
  };

  void end_window();
  void judge(const StreamSample& window);
  void conclude(const StreamSample& best);
  void conclude_rest(bool is_other);
  void take(Outcome& outcome, double gain, double waited);
  [[nodiscard]] double slowest_gain() const;
  void decide(double gained);
  void rest(std::uint32_t times, bool is_other);
  void try_more_or_fewer();
  bool is_another_network(const StreamSample& sample);
  void judge_more(double gained);
  void judge_confirmed(double gained);
  void judge_fewer(double gained);
  void adopt(std::uint32_t count, double gained);
  void try_more();
  void try_fewer();
  void settle();
  void use(Trial trial, std::uint32_t count);
  void begin(Plan plan);

  const std::uint32_t most_;
  const bool is_fixed_;
  bool follows_ = false;
  Plan plan_;
  StreamSample window_;
  Nanoseconds time_{};                 // of this window
  std::uint32_t discarded_ = 0;        // windows since the last change
  std::vector<StreamSample> windows_;  // the last ones with this plan
  double waited_ = 0;                  // seconds, with this plan
  StreamSample base_;       // the best window of each peer with what is in use between trials
  double base_waited_ = 0;  // seconds, with that
  std::map<std::uint32_t, StreamSample> tried_;  // by count, since the last rest
  Outcome own_;
  std::map<std::uint32_t, Outcome> outcomes_;  // of others, by rank
  std::optional<Report> report_;               // this rank's
  StreamSample usual_;                         // the first ones after the last trial
  StreamSample resting_;                       // the latest, between trials
  double more_gain_ = 0;                       // the best of a trial that is to be confirmed
  std::uint32_t more_count_ = 0;
  std::uint32_t num_usual_ = 0, slower_ = 0, faster_ = 0;  // windows in a row, than usual
  bool goes_down_ = false;  // fewer were adopted: even fewer are next
  std::uint32_t patience_ = 0, strange_ = 0, rested_ = 0;
  std::uint32_t rest_ = kWindows;  // windows until the next trial
  std::string news_;
};

}  // namespace slipstream
