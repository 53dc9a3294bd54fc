#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/failures.h"
#include "engine/messages.h"
#include "engine/operations.h"
#include "engine/stream_control.h"
#include "engine/world.h"
#include "transport/transport.h"

namespace slipstream {

/// Hands everything that transports deliver to the operation, group or peer that it concerns.
class Receiver final : public Sink {
 public:
  Receiver(World& world, Operations& operations, Failures& failures, Messages& messages,
           StreamControl& streams)
      : world_(world),
        operations_(operations),
        failures_(failures),
        messages_(messages),
        streams_(streams) {}

  /// The reasons for which transports refused connections.
  [[nodiscard]] const std::vector<std::string>& refusals() const { return refusals_; }
  /// Delivers frames that arrived before the group was created here.
  void deliver_early(Group& group);
  /// Delivers frames that arrived before the operation was submitted here.
  void deliver_early(const std::shared_ptr<Operation>& operation);

  // Sink
  void connected(std::uint32_t peer, Link& link) override;
  void refused(std::uint32_t peer, const std::string& reason) override;
  std::byte* place(std::uint32_t peer, const Frame& frame) override;
  void arrived(std::uint32_t peer, std::uint32_t stream, const Frame& frame,
               std::span<const std::byte> payload) override;
  void stream_lost(std::uint32_t peer, std::uint32_t stream, const std::string& reason) override {
    failures_.stream_lost(peer, stream, reason);
  }
  void stream_opened(std::uint32_t peer, std::uint32_t stream) override {
    failures_.stream_opened(peer, stream);
  }
  void unreachable(std::uint32_t peer, const std::string& reason) override {
    failures_.unreachable(peer, reason);
  }

 private:
  /// The part of an operation to which a frame belongs; the operation is empty if it has ended.
  struct Target {
    std::shared_ptr<Operation> operation;
    std::uint32_t step = 0, segment = 0;
  };
  [[nodiscard]] Target target_of(std::uint32_t peer, Group& group, const Frame& frame) const;

  void dispatch(Peer& peer, Group& group, const Frame& frame, std::span<const std::byte> payload);
  void note_submitted(Peer& peer, Group& group, const Frame& frame);
  void on_segment(Peer& peer, Group& group, const Frame& frame, std::span<const std::byte> payload);
  void on_eager(Peer& peer, Group& group, const Frame& frame, std::span<const std::byte> payload);
  void take_eager(Peer& peer, const std::shared_ptr<Operation>& operation, const Frame& frame,
                  std::span<const std::byte> payload);
  void on_post(Peer& peer, Group& group, const Frame& frame);
  void on_request(Peer& peer, Group& group, const Frame& frame);
  void on_probe(Peer& peer, Group& group, const Frame& frame);
  void on_goodbye(Peer& peer);
  void on_unknown_group(Peer& peer, const Frame& frame, std::span<const std::byte> payload);
  bool keep_for_later(Peer& peer, const Frame& frame, std::span<const std::byte> payload);

  World& world_;
  Operations& operations_;
  Failures& failures_;
  Messages& messages_;
  StreamControl& streams_;
  std::vector<std::string> refusals_;
  std::unordered_map<std::uint64_t, std::vector<Early>> unknown_groups_;  // by id
};

}  // namespace slipstream
