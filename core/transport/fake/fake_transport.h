#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/doorbell.h"
#include "transport/fake/fake_network.h"
#include "transport/transport.h"

namespace slipstream {

/// The link between two ranks of a FakeNetwork.
class FakeLink final : public Link {
 public:
  FakeLink(FakeNetwork& network, std::uint32_t rank, std::uint32_t peer);

  [[nodiscard]] std::uint32_t num_streams() const override;
  [[nodiscard]] bool alive(std::uint32_t stream) const override { return alive_.at(stream); }
  [[nodiscard]] bool ready(std::uint32_t stream) const override;
  bool send(std::uint32_t stream, const Frame& frame, std::span<const std::byte> payload) override;
  [[nodiscard]] bool copies_payload() const override { return network_.options().copies_payload; }
  void forget(std::span<const std::byte> memory) override;
  void give_up() override { lose_all(); }
  [[nodiscard]] std::string describe() const override { return "fake"; }

  void lose(std::uint32_t stream) { alive_.at(stream) = false; }
  void lose_all() { alive_.assign(alive_.size(), false); }

 private:
  FakeNetwork& network_;
  std::uint32_t rank_;
  std::uint32_t peer_;
  std::vector<bool> alive_;
};

/// One rank's end of a FakeNetwork, connected to every other rank that has one. `bell` is rung
/// whenever something is sent to this rank; next_event() may change then.
class FakeTransport final : public Transport {
 public:
  FakeTransport(FakeNetwork& network, std::uint32_t rank, Bell bell);
  FakeTransport(const FakeTransport&) = delete;
  FakeTransport& operator=(const FakeTransport&) = delete;
  ~FakeTransport() override { close(); }

  bool poll(Sink& sink) override;
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool has_links() const override { return true; }
  [[nodiscard]] TimePoint next_event() const override;
  /// Lets the frames that were sent before arrive; then the peers lose all streams.
  void close() override;

 private:
  void handle(const FakeConnected& connected, Sink& sink);
  void handle(const FakeLost& lost, Sink& sink);
  void handle(const FakeArrival& arrival, Sink& sink);
  void handle(const FakeOffer& offer, Sink& sink);
  void handle(const FakeDrained&, Sink&) {}

  FakeNetwork& network_;
  const std::uint32_t rank_;
  bool closed_ = false;
  std::map<std::uint32_t, std::unique_ptr<FakeLink>> links_;
};

}  // namespace slipstream
