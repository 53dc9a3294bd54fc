#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "options.h"
#include "request.h"
#include "slipstream/error.h"
#include "slipstream/log.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transport.h"

namespace slipstream::nccl {

/// One end of a connection of NCCL: a world of two ranks, in which rank 0 receives and rank 1
/// dials and sends.
///
/// The receiver posts every receive on the control stream: "message 7 may have 4 MB; cut it at
/// every 128 KB". The sender cuts the message, and gives each segment to the stream that will
/// deliver it first. The receiver counts the segments of each stream and acknowledges them. If a
/// stream dies, its segments are sent again on others; posts and counts are simply repeated,
/// because a repetition changes nothing.
///
/// NCCL calls a comm from one thread at a time. Worker threads may drive it too.
class Comm : public Sink {
 public:
  /// `peer` is a name of the other end, until it tells its own.
  Comm(const Options& options, std::uint32_t rank, std::uint32_t epoch, TcpOptions tcp,
       std::string peer);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm() override;

  /// Submits a send or receive; returns nullptr if 32 are open.
  Request* submit(std::span<std::byte> memory);
  /// Moves data. If the request is done, releases it and sets `bytes`. Throws Error if the
  /// connection has failed.
  bool test(Request& request, std::size_t& bytes);

  /// Receives, sends and connects as far as that is possible now; does nothing if another thread is
  /// doing that.
  void drive();
  /// The same for a worker thread, which waits for the other thread. Returns whether more can be
  /// done at once.
  bool help();
  [[nodiscard]] int wait_fd() const { return transport_.wait_fd(); }
  /// Throws Error if the connection has failed.
  void check() const;
  [[nodiscard]] bool is_connected() const noexcept { return link_ != nullptr; }

  // Sink
  void connected(std::uint32_t peer, Link& link) override;
  void refused(std::uint32_t peer, const std::string& reason) override;
  void arrived(std::uint32_t peer, std::uint32_t stream, const Frame& frame,
               std::span<const std::byte> payload) override;
  void stream_lost(std::uint32_t peer, std::uint32_t stream, const std::string& reason) override;

 protected:
  /// Takes a new request, whose number is `number`.
  virtual void take(Request& request, std::uint64_t number) = 0;
  /// Sends what can be sent; called after everything that had arrived was handled.
  virtual void advance(TimePoint now) = 0;
  virtual void take_frame(std::uint32_t stream, const Frame& frame,
                          std::span<const std::byte> payload) = 0;
  virtual void lose(std::uint32_t stream) = 0;
  /// Whether requests are open, so that a lost stream matters.
  [[nodiscard]] virtual bool busy() const = 0;

  [[nodiscard]] TcpTransport& transport() noexcept { return transport_; }
  [[nodiscard]] Link& link() noexcept { return *link_; }
  /// The error of a peer that breaks the protocol.
  [[noreturn]] void break_off(const Frame& frame, const std::string& why) const;

 private:
  void turn();
  void log_loss();
  void end(ErrorKind kind, const std::string& why);

  const Log log_;
  const std::string self_;  // the name that the peer is told
  std::string peer_;
  TcpTransport transport_;
  std::mutex driving_;  // held by the driver; guards everything but the requests' states
  Link* link_ = nullptr;
  Requests requests_;
  std::uint64_t taken_ = 0;  // of the submitted requests
  std::optional<Error> failure_;
  std::atomic<bool> failed_ = false;  // set after failure_
  std::string loss_;                  // of a stream, until it is logged
};

}  // namespace slipstream::nccl
