#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collective/plan.h"
#include "engine/completion.h"
#include "slipstream/request.h"

namespace slipstream {

class Group;

/// What a report of a stalled operation found.
struct StallReport {
  std::vector<std::uint32_t> absent;  ///< the ranks of the group that had not submitted it
  std::uint64_t segments_left = 0;
  std::uint64_t ended = 0;  ///< operations that had ended on this rank
};

/// One collective on its way through its plan, on one rank. It knows which segments of which steps
/// are done and which may begin; the engine moves the bytes. Only the driver touches it, but for
/// what is set before it is submitted.
class Operation {
 public:
  Operation(Request request, std::shared_ptr<const Plan> plan, std::shared_ptr<Group> group,
            std::uint64_t segment_bytes);

  [[nodiscard]] const Request& request() const { return request_; }
  [[nodiscard]] const Plan& plan() const { return *plan_; }
  [[nodiscard]] Group& group() const { return *group_; }
  [[nodiscard]] const std::shared_ptr<Completion>& completion() const { return completion_; }
  /// "allreduce 'grad.3' of group 'world'", for messages.
  [[nodiscard]] std::string title() const;

  /// Its number in the group (or from its sender, for point to point).
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  void set_sequence(std::uint64_t sequence) { sequence_ = sequence; }
  /// Its number in the engine: what was submitted first goes first.
  [[nodiscard]] std::uint64_t order() const { return order_; }
  void set_order(std::uint64_t order) { order_ = order; }
  [[nodiscard]] bool is_point_to_point() const {
    return request_.collective == Collective::kSend || request_.collective == Collective::kReceive;
  }

  /// Calls `issue(step, segment)` for everything that may begin.
  using Issue = std::function<void(std::uint32_t step, std::uint32_t segment)>;
  void begin(const Issue& issue);
  /// Notes a finished segment and issues what waited for it. True when it was the last of all.
  bool finish_segment(std::uint32_t step, std::uint32_t segment, const Issue& issue);
  [[nodiscard]] bool is_finished(std::uint32_t step, std::uint32_t segment) const;
  /// Notes that the segment's memory was handed to a transport; true when it had been before.
  bool place(std::uint32_t step, std::uint32_t segment);
  [[nodiscard]] bool is_finished(std::uint32_t step) const {
    return states_[step].finished == states_[step].segments;
  }
  /// Whether data from or to this rank of the group are outstanding.
  [[nodiscard]] bool needs(std::uint32_t peer) const;
  [[nodiscard]] std::uint64_t segments_left() const { return segments_left_; }

  [[nodiscard]] std::uint32_t num_segments(std::uint32_t step) const {
    return states_[step].segments;
  }
  /// The bytes of one segment within one of its step's regions.
  [[nodiscard]] std::span<std::byte> segment_of(const Region& region, std::uint32_t segment) const;
  [[nodiscard]] std::span<std::byte> whole(const Region& region) const {
    return {address(region), stored_bytes(region, region.bytes)};
  }
  /// What travels as one segment of a send step; encoded now if it has to be and is not.
  [[nodiscard]] std::span<const std::byte> outgoing(std::uint32_t step, std::uint32_t segment);
  /// Notes that a segment of a send step could go, or has gone.
  void note_queued(std::uint32_t step) { ++states_[step].queued; }
  void note_sent(std::uint32_t step) {
    --states_[step].queued;
    ++states_[step].sent;
  }
  /// Whether a segment of a send step may go now: not if one of its flock could go and has fallen
  /// behind. What cannot go, since its receiver has not asked for it, holds nothing up.
  [[nodiscard]] bool keeps_pace(std::uint32_t step) const;
  /// What travels as one segment of a receive step.
  [[nodiscard]] std::uint64_t incoming_bytes(std::uint32_t step, std::uint32_t segment) const;
  [[nodiscard]] std::uint64_t segment_bytes() const { return segment_bytes_; }

  /// Executes a local step's segment, or adds up what a receive step's segment brought.
  void run_local(std::uint32_t step, std::uint32_t segment) const;
  void take(std::uint32_t step, std::uint32_t segment, std::span<const std::byte> payload) const;

  [[nodiscard]] bool cancelled() const { return cancelled_; }
  void cancel() { cancelled_ = true; }

  bool is_bulk = false;  ///< moves much over the network
  TimePoint submitted{}, started{}, deadline{}, progressed{}, probed{}, report_at{};
  std::optional<StallReport> reported;  ///< the last one

 private:
  struct State {
    std::uint32_t segments = 0;
    std::uint32_t finished = 0;
    std::uint32_t queued = 0, sent = 0;  // segments; those sent again count twice
    std::uint64_t first_bit = 0;  // three bits a segment: issued, finished, placed or encoded
  };

  static constexpr std::uint64_t kBits = 3;
  [[nodiscard]] std::uint64_t bits_of(std::uint32_t step, std::uint32_t segment) const {
    return states_[step].first_bit + kBits * segment;
  }
  [[nodiscard]] bool bit(std::uint64_t index) const {
    return (bits_[index / 64] >> index % 64) & 1;
  }
  void set_bit(std::uint64_t index) { bits_[index / 64] |= std::uint64_t{1} << index % 64; }
  [[nodiscard]] bool may_begin(const Step& step, std::uint32_t segment) const;
  void issue_if_ready(std::uint32_t step, std::uint32_t segment, const Issue& issue);
  [[nodiscard]] std::byte* address(const Region& region) const;
  /// What `bytes` of a region take up in memory.
  [[nodiscard]] std::uint64_t stored_bytes(const Region& region, std::uint64_t bytes) const {
    return region.encoded ? encoded_bytes(plan_->codec, bytes / sizeof(float)) : bytes;
  }
  [[nodiscard]] float* residual_of(const Region& region, std::uint32_t segment) const;
  void encode_segment(const Step& step, std::uint32_t segment) const;
  void sum_segment(const Step& step, std::uint32_t segment) const;
  void combine(const Step& step, std::span<std::byte> to, const std::byte* lower,
               const std::byte* upper) const;

  const Request request_;
  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<Group> group_;
  const std::uint64_t segment_bytes_;
  const std::shared_ptr<Completion> completion_ = std::make_shared<Completion>();
  std::uint64_t sequence_ = 0, order_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
  std::vector<State> states_;
  std::vector<std::uint64_t> bits_;
  std::uint64_t segments_left_ = 0;
  bool cancelled_ = false;
};

}  // namespace slipstream
