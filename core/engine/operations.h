#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/world.h"
#include "slipstream/stats.h"

namespace slipstream {

/// Runs the operations in flight: issues segments whose predecessors are done, completes operations
/// whose segments are done, and ends operations that fail.
class Operations final : public SegmentSource {
 public:
  explicit Operations(World& world) : world_(world) {}

  /// Records that an operation was submitted. Any thread may call it.
  void note_submitted() { in_flight_.fetch_add(1); }
  /// The number of operations that were submitted and have not ended. Any thread may call it.
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_.load(); }
  /// Whether a large transfer over the network is in progress. Any thread may call it.
  [[nodiscard]] bool runs_bulk() const {
    return running_bulk_.load(std::memory_order_relaxed) != 0;
  }

  /// Records that the driver took an operation over from its submitter.
  void note_started();
  /// Counts a collective as one of the group's running collectives.
  void admit(const std::shared_ptr<Operation>& operation);
  /// Allows the senders to send their segments, and issues all steps that depend on nothing.
  void begin(const std::shared_ptr<Operation>& operation);
  void finish_segment(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                      std::uint32_t segment);
  /// Sends a small step without being asked. Returns true if the step is done, because the payload
  /// was copied. Returns false if the receiver's pool is full and it has not posted the operation;
  /// the step then waits for the post.
  bool send_eagerly(const std::shared_ptr<Operation>& operation, std::uint32_t step);
  void fail(const std::shared_ptr<Operation>& operation, const Error& cause);
  /// The error of an operation that needs data of a rank that is gone.
  [[nodiscard]] std::optional<Error> why_forsaken(const Operation& operation) const;

  /// Fills in a record of an operation in flight, except for the ranks for which it waits.
  static void write_record(const Operation& operation, OperationRecord& record);
  /// Fills in the ranks for which an operation waits.
  static void write_waits(const Operation& operation, OperationRecord& record);

  [[nodiscard]] Stats stats() const;
  void keep_records(bool keep) { keeps_records_.store(keep, std::memory_order_relaxed); }
  [[nodiscard]] std::vector<OperationRecord> take_records();

  // SegmentSource
  Frame frame_of(const Segment& segment) override;
  std::span<const std::byte> payload_of(const Segment& segment) override;
  [[nodiscard]] bool is_cancelled(const Segment& segment) const override;
  void segment_done(const Segment& segment) override;

 private:
  void note_bulk(Operation& operation);
  void post_credits(Operation& operation);
  void issue(const std::shared_ptr<Operation>& operation, std::uint32_t step,
             std::uint32_t segment);
  void issue_send(const std::shared_ptr<Operation>& operation, std::uint32_t step,
                  std::uint32_t segment);
  void complete(const std::shared_ptr<Operation>& operation);
  void forget_memory(const Operation& operation);
  /// Counts an operation that has ended, and keeps its record; `cause` is nullptr for success.
  void retire(const Operation& operation, const Error* cause);

  World& world_;
  std::atomic<std::uint64_t> in_flight_{0};
  std::atomic<std::uint64_t> running_bulk_{0};
  std::uint64_t running_ = 0;
  TimePoint busy_since_{};

  std::mutex records_mutex_;
  std::vector<OperationRecord> records_;  // guarded by records_mutex_
  std::atomic<bool> keeps_records_{false};
};

}  // namespace slipstream
