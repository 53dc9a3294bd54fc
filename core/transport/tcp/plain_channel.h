#pragma once

#include "transport/tcp/byte_channel.h"

namespace slipstream {

/// Bytes without encryption: each call is one system call, and no byte is held back.
class PlainChannel final : public ByteChannel {
 public:
  /// `socket` must stay open as long as the channel is used.
  explicit PlainChannel(int socket) : socket_(socket) {}

  Received receive(std::span<const iovec> parts) override;
  [[nodiscard]] bool ended() const override { return ended_; }
  [[nodiscard]] const std::string& receive_failure() const override { return receive_failure_; }
  std::size_t send(std::span<const iovec> parts) override;
  [[nodiscard]] bool holds_bytes() const override { return false; }
  void flush() override {}
  [[nodiscard]] const std::string& send_failure() const override { return send_failure_; }

 private:
  const int socket_;
  bool ended_ = false;
  std::string receive_failure_;
  std::string send_failure_;
};

}  // namespace slipstream
