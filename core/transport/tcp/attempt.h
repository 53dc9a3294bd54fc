#pragma once

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/address.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "transport/handshake.h"
#include "transport/identity.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/opening.h"
#include "transport/tcp/poller.h"

namespace slipstream {

/// One attempt to open one stream at one endpoint: it connects and then opens the connection.
class Attempt final : public Watcher {
 public:
  enum class State : std::uint8_t { kPending, kDone, kFailed };

  Attempt(Poller& poller, const Identity& self, const SocketAddress& endpoint,
          const Handshake::Call& call, TimePoint deadline);
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt() override { release(); }

  bool on_events(std::uint32_t events, Sink& sink) override;
  /// The state of the attempt; an overdue attempt fails here.
  State check(TimePoint now);
  /// The open connection. Call it once.
  Connection take_connection();
  [[nodiscard]] TimePoint deadline() const noexcept { return opening_.deadline(); }
  /// The reason of a failure, as the end of a sentence whose subject is the endpoint.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// Whether the next attempt at this endpoint would fail in the same way.
  [[nodiscard]] bool hopeless() const noexcept;
  /// Whether a rank of this job answered that it takes no such connection.
  [[nodiscard]] bool refused() const noexcept {
    return opening_.handshake().failure() == Handshake::Failure::kRefused;
  }
  /// Whether the host answered that nobody listens at the endpoint.
  [[nodiscard]] bool unheard() const noexcept { return error_ == ECONNREFUSED; }

 private:
  void connect(const SocketAddress& endpoint);
  void go_on();
  void refuse(int error);
  void stop(std::string reason);
  void release() noexcept;

  Poller& poller_;
  Descriptor socket_;
  Opening opening_;
  const TimePoint started_ = Clock::now();
  bool connected_ = false;
  int error_ = 0;  // of the system call that connects
  State state_ = State::kPending;
  std::string reason_;
};

}  // namespace slipstream
