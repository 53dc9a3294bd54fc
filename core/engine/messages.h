#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/failures.h"
#include "engine/operations.h"
#include "engine/world.h"

namespace slipstream {

/// Messages between two ranks. The sender numbers them for each receiver; the receiver matches them
/// by source and tag, in the order of arrival. Small messages are sent at once. For a large message
/// the sender first asks (kRequest), and the receiver posts once it has a matching receive.
class Messages {
 public:
  Messages(World& world, Operations& operations, Failures& failures)
      : world_(world), operations_(operations), failures_(failures) {}

  void start_send(const std::shared_ptr<Operation>& operation);
  void start_receive(const std::shared_ptr<Operation>& operation);
  void on_message(Peer& peer, Group& group, const Frame& frame, std::span<const std::byte> payload);
  /// Handles a receiver's post of a large message: the segments are sent.
  void on_post(Peer& peer, Group& group, const Frame& frame);

 private:
  bool check_size(Peer& peer, const Frame& frame, std::span<const std::byte> payload);
  void match(const std::shared_ptr<Operation>& receive, Early&& message);
  void check_possible(const std::shared_ptr<Operation>& operation);

  World& world_;
  Operations& operations_;
  Failures& failures_;
};

}  // namespace slipstream
