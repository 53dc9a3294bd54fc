#pragma once

#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/operation.h"

namespace slipstream {

/// Operations that may not start yet: gated ones whose slot a device has not filled, and later ones
/// that must start after them, because all ranks start collectives in the same order.
class HeldOperations {
 public:
  [[nodiscard]] bool empty() const noexcept { return held_.empty(); }
  [[nodiscard]] const std::deque<std::shared_ptr<Operation>>& all() const noexcept { return held_; }
  void add(std::shared_ptr<Operation> operation) { held_.push_back(std::move(operation)); }
  /// Adds operations in front of all others.
  void put_back(std::span<const std::shared_ptr<Operation>> operations) {
    held_.insert(held_.begin(), operations.begin(), operations.end());
  }
  /// Removes the operations that may start, and returns them in order.
  [[nodiscard]] std::vector<std::shared_ptr<Operation>> take_ready();
  [[nodiscard]] std::deque<std::shared_ptr<Operation>> take_all() {
    return std::exchange(held_, {});
  }

 private:
  std::deque<std::shared_ptr<Operation>> held_;
};

/// Whether the device has given up, so that the slot of a gated operation has no meaning.
[[nodiscard]] bool has_open_ring(const Operation& operation);
/// Ends the use of a gated operation's slot. If the operation has failed, the slot is filled with
/// NaN, unless it still belongs to the device.
void release_slot(const Operation& operation, bool failed);

}  // namespace slipstream
