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

/// Chooses how many streams to each peer carry segments. It doubles their number while throughput
/// rises, and then tries fewer. It repeats the search after a while, and soon after rates have
/// changed. So it fills a network that limits each flow, and uses few streams in one that suffers
/// from many.
///
/// Only time in which segments to a peer wait for a stream counts, because only then the network is
/// the limit. Bytes delivered to a peer are compared with the best earlier rate of the same peer.
/// Therefore it does not count as a gain if an operation continues with nearer peers, if an uplink
/// is idle for a while, or if one peer gains at the expense of others. A gain is measured in three
/// windows, without the worst one; a small gain must show against the previous setting both before
/// and after the trial. This class is pure arithmetic, without a clock.
///
/// All ranks use the same number, and one of them decides. The other ranks take part in its trials
/// and report: first how long they had waited before, and then the gain that they saw. Ranks of a
/// collective wait for one another, and all ranks advance at the pace of the slowest. The gain of a
/// rank that had waited all of the time counts in full; a rank that had waited half of the time
/// could lose half.
class StreamTuner {
 public:
  static constexpr std::uint32_t kFirstCount = 1;

  enum class Trial : std::uint8_t { kNone, kMore, kConfirm, kFewer };
  /// The setting that all ranks use.
  struct Plan {
    Trial trial = Trial::kNone;
    std::uint32_t count = 1;  ///< the number in trial, or the number just tried (kConfirm)
    /// The number before the trial, which is used in kNone and kConfirm.
    std::uint32_t base_count = 1;
    std::uint32_t number = 0;  ///< number of this plan

    bool operator==(const Plan&) const = default;
    /// The plan in 64 bits, and back.
    [[nodiscard]] std::uint64_t packed() const;
    static Plan unpacked(std::uint64_t bits);
  };
  /// The result of a plan on one rank.
  struct Report {
    std::uint32_t number = 0;  ///< number of the plan
    double gain = 0;           ///< 0: unknown so far
    double waited = 0;         ///< seconds, with the previous setting
  };

  /// `most` is at least 1. If `is_fixed` is true, `most` streams are used and nothing is tried;
  /// otherwise `first` streams are used at first.
  StreamTuner(std::uint32_t most, bool is_fixed, std::uint32_t first = kFirstCount);

  [[nodiscard]] std::uint32_t count() const;
  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// Records that segments for a peer waited for `time`, in which `bytes` were delivered to it.
  void note(std::uint32_t peer, Nanoseconds time, std::uint64_t bytes);
  /// Records that segments for any peer waited for `time`, as noted before. May change plan() or,
  /// if another rank decides, prepare a report.
  void waited(Nanoseconds time);

  /// Follows the plan of another rank, which decides from now on.
  void follow(Plan plan);
  /// Makes this rank decide from now on; another rank's trial ends.
  void lead();
  /// Handles the report of another rank, which counts if this rank decides. May change plan().
  void hear(std::uint32_t rank, const Report& report);
  /// The report to send to the rank that decides.
  std::optional<Report> take_report();
  /// The decisions since the last call as text; empty if there were none.
  [[nodiscard]] std::string take_news();

 private:
  static constexpr std::size_t kWindows = 3;

  /// The result of a plan on another rank, as far as it is known here.
  struct Outcome {
    double gain = 0, waited = 0;
    std::uint32_t times = 0;  // number of reports
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
  Nanoseconds time_{};                 // length of the current window
  std::uint32_t discarded_ = 0;        // windows dropped since the last change
  std::vector<StreamSample> windows_;  // the last windows with this plan
  double waited_ = 0;                  // seconds with this plan
  StreamSample base_;                  // best window of each peer with the setting between trials
  double base_waited_ = 0;             // seconds with that setting
  std::map<std::uint32_t, StreamSample> tried_;  // by number of streams, since the last rest
  Outcome own_;
  std::map<std::uint32_t, Outcome> outcomes_;  // of other ranks, by rank
  std::optional<Report> report_;               // the report of this rank
  StreamSample usual_;                         // the first windows after the last trial
  StreamSample resting_;                       // the latest windows between trials
  double more_gain_ = 0;  // the best gain of a trial that must still be confirmed
  std::uint32_t more_count_ = 0;
  std::uint32_t num_usual_ = 0, slower_ = 0, faster_ = 0;  // windows in a row, compared with usual_
  bool goes_down_ = false;  // fewer streams were adopted, so even fewer are tried next
  std::uint32_t patience_ = 0, strange_ = 0, rested_ = 0;
  std::uint32_t rest_ = kWindows;  // windows until the next trial
  std::string news_;
};

}  // namespace slipstream
