#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "transport/identity.h"
#include "transport/tcp/attempt.h"
#include "transport/tcp/poller.h"

namespace slipstream {

/// Opens all streams to one peer. Stream 0 looks for an endpoint that is the peer's, in the given
/// order and again until the deadline (a listener that is not up yet refuses); the other streams
/// follow it there. An endpoint at which somebody else answers is not tried again.
class Dialler {
 public:
  struct Plan {
    std::uint32_t peer = 0;
    std::vector<std::string> endpoints;
    std::uint16_t num_streams = 2;  ///< control stream included
    Clock::duration deadline = 30s;
    std::uint32_t link_local_scope = 0;  ///< for endpoints that need one and have none
  };
  enum class State : std::uint8_t { kDialling, kDone, kFailed };

  Dialler(Poller& poller, const Identity& self, Plan plan);

  /// Goes on with what attempts have come to and with what is due.
  State advance(TimePoint now);
  [[nodiscard]] TimePoint next_event() const;
  /// Once kDone: the connections, in the order of the streams.
  std::vector<Descriptor> take_sockets();
  /// Once kFailed: each endpoint and what became of it.
  [[nodiscard]] std::string reason() const;

 private:
  struct Endpoint {
    std::string text;
    std::optional<SocketAddress> address;
    std::string failure;  // of the last attempt
    bool hopeless = false;
  };
  struct Line {  // what will be a stream
    std::unique_ptr<Attempt> attempt;
    Descriptor socket;
    TimePoint retry{};
  };
  bool advance_line(std::size_t stream, TimePoint now);
  void start(std::size_t stream, TimePoint now);
  void take_failure(std::size_t stream, TimePoint now);
  void choose_next_endpoint(TimePoint now);
  [[nodiscard]] bool hopeless() const;
  Clock::duration back_off() noexcept;

  Poller& poller_;
  const Identity self_;
  const Plan plan_;
  const TimePoint deadline_;
  std::vector<Endpoint> endpoints_;
  std::size_t endpoint_ = 0;  // the one that is tried, or that was found
  std::vector<Line> lines_;
  Clock::duration pause_ = 10ms;
  State state_ = State::kDialling;
};

}  // namespace slipstream
