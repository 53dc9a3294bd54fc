#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "transport/handshake.h"
#include "transport/identity.h"
#include "transport/tcp/attempt.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/poller.h"

namespace slipstream {

/// Opens all streams to one peer. Stream 0 searches for the endpoint of the peer, in the given
/// order and again until the deadline, because a listener that is not up yet refuses. The other
/// streams use the endpoint that it finds. An endpoint at which another process answers is not
/// tried again.
class Dialler {
 public:
  struct Plan {
    Purpose purpose = Purpose::kTcp;
    std::uint32_t peer = 0;
    std::string name;  ///< of the peer, in messages
    std::vector<std::string> endpoints;
    std::uint16_t num_streams = 2;  ///< including the control stream
    Clock::duration deadline = 30s;
    std::uint32_t link_local_scope = 0;  ///< for endpoints that need a scope and have none
  };
  enum class State : std::uint8_t { kDialling, kDone, kFailed };

  Dialler(Poller& poller, const Identity& self, Plan plan);

  /// Handles the results of attempts and starts the attempts that are due.
  State advance(TimePoint now);
  [[nodiscard]] TimePoint next_event() const;
  /// The connections, in the order of the streams. Valid once kDone.
  std::vector<Connection> take_connections();
  /// Each endpoint with the result of its attempts. Valid once kFailed.
  [[nodiscard]] std::string reason() const;

 private:
  struct Endpoint {
    std::string text;
    std::optional<SocketAddress> address;
    std::string failure;  // failure of the last attempt
    bool hopeless = false;
  };
  struct Line {  // a future stream
    std::unique_ptr<Attempt> attempt;
    Connection connection;
    TimePoint retry{};
    [[nodiscard]] bool done() const noexcept { return !!connection.socket; }
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
  std::size_t endpoint_ = 0;  // the endpoint that is being tried, or that was found
  std::vector<Line> lines_;
  Clock::duration pause_ = 10ms;
  State state_ = State::kDialling;
};

}  // namespace slipstream
