#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "comm.h"
#include "flight.h"
#include "handle.h"
#include "segments.h"

namespace slipstream::nccl {

/// The end that sends. A send is done when the receiver has acknowledged all of its segments, since
/// until then they may have to be sent again.
class SendComm final : public Comm {
 public:
  /// Starts to connect; drive() goes on with it. Throws Error(kUsage) if the handle is not ours.
  SendComm(const Options& options, const Handle& handle, const Log& log);

 protected:
  void connected(std::uint32_t peer, Link& link) override;
  std::byte* place(std::uint32_t /*peer*/, const Frame& /*frame*/) override { return nullptr; }
  void take(Request& request, std::uint64_t number) override;
  void advance(TimePoint now) override;
  void take_frame(std::uint32_t stream, const Frame& frame,
                  std::span<const std::byte> payload) override;
  void lose(std::uint32_t stream) override;
  [[nodiscard]] bool busy() const override { return !messages_.empty(); }

 private:
  /// The receiver's permission to send a message.
  struct Post {
    std::uint64_t room = 0;
    std::uint32_t segment_bytes = 0;
  };
  struct Message {
    Request* request = nullptr;
    std::optional<Segments> segments;  // once the receiver has posted it
    std::uint64_t next = 0;            // segment that was never sent
  };

  void take_post(const Frame& frame);
  void take_acknowledgement(const Frame& frame);
  void deliver(SegmentId id);
  [[nodiscard]] Message* find(std::uint64_t number);
  std::optional<SegmentId> next_segment();
  bool cut(Message& message);
  bool send(SegmentId id, TimePoint now);
  void note_sent(SegmentId id);

  std::optional<Flight> flight_;  // once connected
  std::deque<Message> messages_;  // not acknowledged, in order
  std::uint64_t first_ = 0;       // number of the first of them
  std::uint64_t current_ = 0;     // number of the first that has segments that were never sent
  std::deque<Post> posts_;        // of messages from current_ on that are not cut yet
  std::uint64_t num_posts_ = 0;   // received so far
  std::deque<SegmentId> again_;   // segments of dead streams
};

}  // namespace slipstream::nccl
