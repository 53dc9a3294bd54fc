#include "engine/held_operations.h"

#include <algorithm>

#include "engine/group.h"
#include "gate/gated_ring.h"

namespace slipstream {
namespace {

/// Operations of equal lines start in the order of their submission: the collectives of a group,
/// its receives, and its sends to one rank.
struct Line {
  const Group* group;
  Collective kind;
  std::uint32_t peer;
  bool operator==(const Line&) const = default;
};

Line line_of(const Operation& operation) {
  const Request& request = operation.request();
  if (!operation.is_point_to_point()) return {&operation.group(), Collective::kBarrier, 0};
  const bool sends = request.collective == Collective::kSend;
  return {&operation.group(), request.collective, sends ? request.root : 0};
}

/// Whether the operation can only fail. It then needs no order, and the device before which it
/// waits may have failed.
bool is_lost(const Operation& operation) {
  const Group& group = operation.group();
  if (operation.request().ring != nullptr) return false;  // the slot may belong to the device
  return group.closed || (group.failure && (operation.is_point_to_point() ||
                                            operation.sequence() >= group.failed_from));
}

bool may_start(const Operation& operation) {
  const Request& request = operation.request();
  return request.ring == nullptr || request.ring->ready(request.chunk) || has_open_ring(operation);
}

}  // namespace

std::vector<std::shared_ptr<Operation>> HeldOperations::take_ready() {
  std::vector<std::shared_ptr<Operation>> ready;
  std::vector<Line> waiting;
  std::erase_if(held_, [&](std::shared_ptr<Operation>& operation) {
    const Line line = line_of(*operation);
    const bool is_behind = std::ranges::find(waiting, line) != waiting.end();
    if (is_behind && !is_lost(*operation)) return false;
    if (!may_start(*operation)) {
      waiting.push_back(line);
      return false;
    }
    ready.push_back(std::move(operation));
    return true;
  });
  return ready;
}

bool has_open_ring(const Operation& operation) {
  return operation.request().ring != nullptr && operation.request().ring->is_open();
}

void release_slot(const Operation& operation, bool failed) {
  const Request& request = operation.request();
  if (request.ring == nullptr) return;
  // A slot that is not filled, or that the device has given up, still belongs to the device.
  if (failed && request.ring->ready(request.chunk) && !request.ring->is_open()) {
    request.ring->release_nan(request.chunk, request.ring->shape().slot_bytes);
  } else {
    request.ring->release(request.chunk);
  }
}

}  // namespace slipstream
