#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "slipstream/flight.h"
#include "slipstream/stats.h"

namespace slipstream {

/// The last operations and events of an engine, for flight records. Only the driver touches it,
/// except for alarms().
class Flight {
 public:
  static constexpr std::size_t kOperations = 128;
  static constexpr std::size_t kEvents = 128;

  /// The record to overwrite with the next ended operation. Its strings keep their memory, so a
  /// record costs no allocation once the ring is full.
  [[nodiscard]] OperationRecord& next_operation();
  /// The ended operations, the oldest first.
  [[nodiscard]] std::vector<OperationRecord> operations() const;
  [[nodiscard]] std::uint64_t ended_operations() const { return ended_; }

  void note(FlightEvent event);
  /// Whether an event of this kind about this operation is among the last events.
  [[nodiscard]] bool has(FlightEvent::Kind kind, const std::string& group,
                         std::uint64_t sequence) const;
  [[nodiscard]] std::vector<FlightEvent> events() const { return {events_.begin(), events_.end()}; }

  /// Asks for a flight record: something happened that a user may want explained.
  void alarm();
  /// The number of alarms. Any thread may call it.
  [[nodiscard]] std::uint64_t alarms() const { return alarms_.load(std::memory_order_relaxed); }
  /// Sets a function that alarm() calls; it must not block.
  void on_alarm(std::function<void()> call) { on_alarm_ = std::move(call); }

 private:
  std::vector<OperationRecord> ring_;
  std::uint64_t ended_ = 0;
  std::deque<FlightEvent> events_;
  std::atomic<std::uint64_t> alarms_{0};
  std::function<void()> on_alarm_;
};

}  // namespace slipstream
