#pragma once

#include <cstdint>
#include <string>

#include "engine/stream_lead.h"
#include "engine/stream_tuner.h"
#include "engine/world.h"

namespace slipstream {

/// Decides how many streams to each peer carry segments; stream_tuner.h describes the search. All
/// ranks use the same number, and one of them decides.
class StreamControl {
 public:
  explicit StreamControl(World& world);

  [[nodiscard]] std::uint32_t count() const { return tuner_.count(); }
  /// Records that segments for the peer waited since the last poll, and that the peer acknowledged
  /// `delivered` bytes meanwhile.
  void note(const Peer& peer, std::uint64_t delivered);
  /// `waited` is true if segments waited for the network since the last poll.
  void tune(bool waited);
  void on_plan(const Peer& peer, const Frame& frame);
  void on_report(const Peer& peer, const Frame& frame);
  /// The decisions since the last call, for the log; "" if there were none.
  [[nodiscard]] std::string take_news() { return tuner_.take_news(); }

 private:
  void announce();
  void report();
  void use();

  World& world_;
  StreamTuner tuner_;
  StreamLead lead_;
  TimePoint lead_again_{};       // time at which this rank, if it decides, announces its plan again
  std::uint32_t announced_ = 0;  // number of the last plan
};

}  // namespace slipstream
