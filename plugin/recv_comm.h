#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "comm.h"
#include "handle.h"
#include "segments.h"

namespace slipstream::nccl {

/// The end that receives. It listens until the sender is connected. A receive is done when all of
/// its segments have arrived and their acknowledgements are on their way, so that NCCL may close
/// the comm at once.
class RecvComm final : public Comm {
 public:
  /// Listens on the addresses. Throws Error(kConfig) if it cannot.
  RecvComm(const Options& options, const std::vector<std::string>& addresses, std::uint32_t epoch,
           const Log& log);
  /// The handle for the sender.
  [[nodiscard]] Handle handle();

 protected:
  void connected(std::uint32_t peer, Link& link) override;
  std::byte* place(std::uint32_t peer, const Frame& frame) override;
  void take(Request& request, std::uint64_t number) override;
  void advance(TimePoint now) override;
  void take_frame(std::uint32_t stream, const Frame& frame,
                  std::span<const std::byte> payload) override;
  void lose(std::uint32_t stream) override;
  [[nodiscard]] bool busy() const override { return !messages_.empty(); }

 private:
  struct Message {
    Request* request = nullptr;
    std::optional<Segments> segments;  // once the first one has arrived
  };
  struct Finished {
    Request* request;
    std::size_t bytes;
  };
  struct Counts {  // of segments of one stream
    std::uint64_t received = 0, reported = 0;
  };

  Message* find(const Frame& frame);
  void finish(Message& message);
  void post();
  void acknowledge();
  [[nodiscard]] bool send_control(Frame frame);

  const std::uint32_t segment_bytes_;
  const std::uint32_t epoch_;
  const std::optional<std::uint32_t> rank_;
  std::deque<Message> messages_;    // posted, in order
  std::uint64_t first_ = 0;         // number of the first of them
  std::uint64_t next_post_ = 0;     // number of the first whose post must be sent
  std::vector<Finished> finished_;  // whose acknowledgements are not sent yet
  std::vector<Counts> streams_;
  std::uint32_t control_ = 0;  // the stream of posts and acknowledgements
};

}  // namespace slipstream::nccl
