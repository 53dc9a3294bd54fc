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

/// The findings of a report about a stalled operation.
struct StallReport {
  std::vector<std::uint32_t> absent;  ///< ranks of the group that had not submitted the operation
  std::uint64_t segments_left = 0;
  std::uint64_t ended = 0;  ///< operations that had ended on this rank
};

/// One collective on one rank, while it executes its plan. It tracks which segments of which steps
/// are done and which may begin; the engine moves the bytes. Only the driver touches it, except for
/// fields that are set before submission.
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

  /// The number in the group, or the sender's number for point to point.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  void set_sequence(std::uint64_t sequence) { sequence_ = sequence; }
  /// The number in the engine: operations that were submitted earlier proceed first.
  [[nodiscard]] std::uint64_t order() const { return order_; }
  void set_order(std::uint64_t order) { order_ = order; }
  [[nodiscard]] bool is_point_to_point() const {
    return request_.collective == Collective::kSend || request_.collective == Collective::kReceive;
  }

  /// Calls `issue(step, segment)` for every segment that may begin.
  using Issue = std::function<void(std::uint32_t step, std::uint32_t segment)>;
  void begin(const Issue& issue);
  /// Records a finished segment and issues the segments that waited for it. Returns whether it was
  /// the last segment of the operation.
  bool finish_segment(std::uint32_t step, std::uint32_t segment, const Issue& issue);
  [[nodiscard]] bool is_finished(std::uint32_t step, std::uint32_t segment) const;
  /// Records that the segment's memory was handed to a transport. Returns whether it had been
  /// before.
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
  /// The bytes of one segment of a region.
  [[nodiscard]] std::span<std::byte> segment_of(const Region& region, std::uint32_t segment) const;
  [[nodiscard]] std::span<std::byte> whole(const Region& region) const {
    return {address(region), stored_bytes(region, region.bytes)};
  }
  /// The bytes to send for one segment of a send step; encodes them first if necessary.
  [[nodiscard]] std::span<const std::byte> outgoing(std::uint32_t step, std::uint32_t segment);
  /// Records that a segment of a send step is ready to be sent, or was sent.
  void note_queued(std::uint32_t step) { ++states_[step].queued; }
  void note_sent(std::uint32_t step) {
    --states_[step].queued;
    ++states_[step].sent;
  }
  /// Whether a segment of a send step may be sent now. It may not if another step of its flock is
  /// ready but has fallen behind. A step whose receiver has not asked for it holds up no other
  /// step.
  [[nodiscard]] bool keeps_pace(std::uint32_t step) const;
  /// The number of bytes that arrive for one segment of a receive step.
  [[nodiscard]] std::uint64_t incoming_bytes(std::uint32_t step, std::uint32_t segment) const;
  [[nodiscard]] std::uint64_t segment_bytes() const { return segment_bytes_; }

  /// Executes a segment of a local step, or combines the received segment of a receive step.
  void run_local(std::uint32_t step, std::uint32_t segment) const;
  void take(std::uint32_t step, std::uint32_t segment, std::span<const std::byte> payload) const;

  [[nodiscard]] bool cancelled() const { return cancelled_; }
  void cancel() { cancelled_ = true; }

  bool is_bulk = false;       ///< whether it moves much data over the network
  bool is_asked_for = false;  ///< a large message whose receiver has posted it
  TimePoint submitted{}, started{}, deadline{}, progressed{}, probed{}, report_at{};
  std::optional<StallReport> reported;  ///< the last report

 private:
  struct State {
    std::uint32_t segments = 0;
    std::uint32_t finished = 0;
    std::uint32_t queued = 0, sent = 0;  // segments; repeated ones count twice
    // Each segment has three bits: issued, finished, placed or encoded.
    std::uint64_t first_bit = 0;
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
  /// The size in memory of `bytes` bytes of a region.
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
