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

/// The protocol of negotiation.h on one rank, without its thread: what is submitted, and one round
/// after another.
class Rounds {
 public:
  Rounds(Channel& channel, const NegotiationOptions& options, Log log);

  /// Takes tensors that were submitted together. Those that fail at once are in the result.
  std::vector<FailedTensor> add(std::span<const Submission> unit, TimePoint now);
  void join() { joining_ = true; }

  /// Whether this rank has something that it had not in the last round.
  [[nodiscard]] bool has_news(TimePoint now) const {
    return fresh_ || wants_to_join() || now >= pending_.next_report();
  }
  /// Whether anything can become ready in a round of which others have begun.
  [[nodiscard]] bool has_part() const { return joining_ || !pending_.empty(); }
  /// When a report is due.
  [[nodiscard]] TimePoint next_report() const { return pending_.next_report(); }
  /// The next round is to find out whether the others are still there.
  void distrust() { fresh_ = fresh_ || has_part(); }

  /// One round with all ranks. Blocks until all take part; throws what the engine fails with.
  Outcome run();
  /// Ends everything that waits.
  std::vector<FailedTensor> fail_all(const Error& cause);
  [[nodiscard]] NegotiationStats stats() const;

 private:
  using Words = std::vector<std::uint64_t>;
  struct Dispute;
  /// A tensor as a stall report showed it.
  struct Reported {
    std::uint64_t used = 0;           ///< of its entry in the table: it changes when it is ready
    std::vector<bool> has_submitted;  ///< by rank
  };

  [[nodiscard]] bool wants_to_join() const {
    return joining_ && joined_in_ == 0 && pending_.empty();
  }
  /// Of a set of all tensors: `bits`, or ones if this rank has joined.
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
  std::map<std::string, Reported> reported_;     // tensors that wait still
  std::unordered_map<std::string, Error> owed_;  // failures for tensors not submitted here yet
  bool fresh_ = false;
  bool joining_ = false;
  std::uint64_t joined_in_ = 0;  // the first round in which this rank had joined; 0: it has not
  std::uint64_t round_ = 0;
  NegotiationStats stats_;
};

}  // namespace slipstream
