#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "negotiation/channel.h"
#include "negotiation/pending.h"
#include "negotiation/table.h"
#include "slipstream/negotiation.h"

namespace slipstream {

/// The protocol of negotiation.h on one rank, without its thread: submissions, and one round after
/// another.
class Rounds {
 public:
  Rounds(Channel& channel, const NegotiationOptions& options, Log log);

  /// Adds tensors that were submitted together. The result has those that failed at once.
  std::vector<FailedTensor> add(std::span<const Submission> unit, TimePoint now);
  void join() { joining_ = true; }

  /// Whether this rank has anything that it did not have in the last round.
  [[nodiscard]] bool has_news(TimePoint now) const {
    return fresh_ || wants_to_join() || now >= pending_.next_report();
  }
  /// Whether a tensor of this rank can become ready in a round that other ranks have begun.
  [[nodiscard]] bool has_part() const { return joining_ || !pending_.empty(); }
  /// The time at which a report is due.
  [[nodiscard]] TimePoint next_report() const { return pending_.next_report(); }
  /// Makes the next round check whether the other ranks are still there.
  void distrust() { fresh_ = fresh_ || has_part(); }

  /// Runs one round with all ranks. Blocks until all take part; throws the engine's error.
  Outcome run();
  /// Fails all waiting tensors.
  std::vector<FailedTensor> fail_all(const Error& cause);
  [[nodiscard]] NegotiationStats stats() const;

 private:
  using Words = std::vector<std::uint64_t>;
  struct Dispute;
  /// A tensor in the state in which a stall report showed it.
  struct Reported {
    std::uint64_t used = 0;  ///< `used` of its table entry, which changes when it becomes ready
    std::vector<bool> has_submitted;  ///< by rank
  };

  [[nodiscard]] bool wants_to_join() const {
    return joining_ && joined_in_ == 0 && pending_.empty();
  }
  /// The words of a set of all tensors: `bits`, or ones if this rank has joined.
  [[nodiscard]] Words words_of(const Bits& bits) const;
  void collect_ready(std::span<const std::uint64_t> ready, Outcome& outcome);
  AgreedTensor agree(std::uint32_t number, std::uint32_t fused);
  void exchange_news(Outcome& outcome);
  std::vector<Metadata> gather_news();
  void make_room(std::span<const Metadata> news);
  void settle(const std::vector<std::string>& disputed, Outcome& outcome);
  void fail_disputed(const std::string& name, const std::string& table, bool is_here,
                     Outcome& outcome);
  void report_stall();
  std::string forget_ended(std::span<const Words> sets);
  std::string describe_stalled(std::uint32_t number, std::span<const Words> sets);
  std::uint32_t find_last_joined();

  Channel& channel_;
  const NegotiationOptions options_;
  const Log log_;
  TensorTable table_;
  Pending pending_;
  std::map<std::string, Reported> reported_;     // tensors that are still waiting
  std::unordered_map<std::string, Error> owed_;  // failures for tensors not submitted here yet
  bool fresh_ = false;
  bool joining_ = false;
  // The first round in which this rank had joined; 0: it has not joined.
  std::uint64_t joined_in_ = 0;
  std::uint64_t round_ = 0;
  NegotiationStats stats_;
};

}  // namespace slipstream
