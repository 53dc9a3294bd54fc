#include "engine/flight.h"

#include <algorithm>
#include <utility>

namespace slipstream {

OperationRecord& Flight::next_operation() {
  const std::size_t index = ended_++ % kOperations;
  if (index == ring_.size()) ring_.emplace_back();
  return ring_[index];
}

std::vector<OperationRecord> Flight::operations() const {
  std::vector<OperationRecord> ordered = ring_;
  if (ended_ > kOperations) {
    const auto oldest = static_cast<std::ptrdiff_t>(ended_ % kOperations);
    std::rotate(ordered.begin(), ordered.begin() + oldest, ordered.end());
  }
  return ordered;
}

void Flight::note(FlightEvent event) {
  if (events_.size() == kEvents) events_.pop_front();
  events_.push_back(std::move(event));
}

bool Flight::has(FlightEvent::Kind kind, const std::string& group, std::uint64_t sequence) const {
  return std::ranges::any_of(events_, [&](const FlightEvent& event) {
    return event.kind == kind && event.sequence == sequence && event.group == group;
  });
}

void Flight::alarm() {
  alarms_.fetch_add(1, std::memory_order_relaxed);
  if (on_alarm_) on_alarm_();
}

std::string_view name_of(OperationState state) {
  switch (state) {
    case OperationState::kWaiting:
      return "waiting";
    case OperationState::kRunning:
      return "running";
    case OperationState::kDone:
      return "done";
    default:
      return "failed";
  }
}

std::string_view name_of(FlightEvent::Kind kind) {
  switch (kind) {
    case FlightEvent::Kind::kStreamsLost:
      return "streams lost";
    case FlightEvent::Kind::kStreamsOpened:
      return "streams opened";
    case FlightEvent::Kind::kAborted:
      return "aborted";
    case FlightEvent::Kind::kFailed:
      return "failed";
    case FlightEvent::Kind::kStalled:
      return "stalled";
    case FlightEvent::Kind::kAwaited:
      return "awaited";
    default:
      return "paused";
  }
}

}  // namespace slipstream
