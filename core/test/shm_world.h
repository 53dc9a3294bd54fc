#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/doorbell.h"
#include "test/transport_world.h"
#include "transport/shm/shm_transport.h"

namespace slipstream::test {

inline Identity shm_identity(std::uint32_t rank, std::uint32_t world_size, std::uint8_t seed = 1) {
  Identity identity{.rank = rank, .world_size = world_size, .epoch = 3, .key = {}};
  identity.key.fill(std::byte{seed});
  return identity;
}

/// Ranks of this process that share memory like ranks of several processes.
inline TransportFamily shm_family(std::string name, const ShmOptions& options) {
  const auto make = [options](std::span<Doorbell* const> doorbells) {
    const auto world_size = static_cast<std::uint32_t>(doorbells.size());
    Wires wires;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      auto transport =
          std::make_unique<ShmTransport>(shm_identity(rank, world_size), options, *doorbells[rank]);
      for (std::uint32_t peer = 0; peer < rank; ++peer) {
        const auto& lower = static_cast<const ShmTransport&>(*wires.transports[peer]);
        EXPECT_TRUE(transport->dial(peer, lower.name()));
      }
      wires.transports.push_back(std::move(transport));
    }
    return wires;
  };
  TransportFamily family;
  family.name = std::move(name);
  family.make = make;
  family.max_payload = [options](std::uint32_t stream) {
    return stream == 0 ? options.eager_bytes : options.segment_bytes;
  };
  return family;
}

/// A single rank, with its events in order and its log.
class ShmRank final : public Sink {
 public:
  explicit ShmRank(const Identity& identity, ShmOptions options = {})
      : transport(identity, with_log(std::move(options)), bell) {}

  void connected(std::uint32_t peer, Link& link) override { links[peer] = &link; }
  void refused(std::uint32_t peer, const std::string& reason) override { refusals[peer] = reason; }
  std::byte* place(std::uint32_t, const Frame&) override {
    ADD_FAILURE() << "payload in shared memory needs no place";
    return nullptr;
  }
  void arrived(std::uint32_t peer, std::uint32_t stream, const Frame& frame,
               std::span<const std::byte> payload) override {
    EXPECT_TRUE(lost.empty()) << "a frame after its stream was lost";
    ++num_arrived[stream];
    if (on_arrived) on_arrived(peer, stream, frame, payload);
  }
  void stream_lost(std::uint32_t, std::uint32_t stream, const std::string& reason) override {
    lost[stream] = reason;
  }

  bool poll() { return transport.poll(*this); }

  Doorbell bell;
  std::vector<std::string> log;
  std::map<std::uint32_t, Link*> links;
  std::map<std::uint32_t, std::string> refusals;
  std::map<std::uint32_t, std::string> lost;  ///< by stream
  std::map<std::uint32_t, std::size_t> num_arrived;
  std::function<void(std::uint32_t peer, std::uint32_t stream, const Frame&,
                     std::span<const std::byte>)>
      on_arrived;
  ShmTransport transport;

 private:
  ShmOptions with_log(ShmOptions options) {
    options.log = Log([this](LogLevel, const std::string& text) { log.push_back(text); });
    return options;
  }
};

/// Polls all ranks until the condition is true; returns false if that takes longer than kPatience.
template <typename Condition>
bool poll_until(std::initializer_list<ShmRank*> ranks, Condition condition) {
  const TimePoint deadline = Clock::now() + kPatience;
  while (!condition()) {
    for (ShmRank* const rank : ranks) rank->poll();
    if (Clock::now() >= deadline) return false;
  }
  return true;
}

}  // namespace slipstream::test
