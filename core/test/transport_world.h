#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"
#include "transport/transport.h"

namespace slipstream::test {

/// Longer than anything takes under a sanitizer on a busy machine; only a failure reaches it.
constexpr Clock::duration kPatience = 120s;  // under TSAN, 128 ranks on one busy core took 48

/// The transports of some ranks, which have dialled one another but are not polled yet, and the
/// objects that they share.
struct Wires {
  std::vector<std::unique_ptr<Transport>> transports;  ///< by rank
  std::shared_ptr<void> shared;                        ///< outlives them
};

/// A way to create transports; the contract suite is instantiated with it.
struct TransportFamily {
  std::string name;
  std::function<Wires(std::span<Doorbell* const> doorbells)> make;
  /// The largest payload that a stream accepts.
  std::function<std::uint32_t(std::uint32_t stream)> max_payload = [](std::uint32_t) {
    return kMaxSegmentBytes;
  };
};
inline void PrintTo(const TransportFamily& family, std::ostream* out) { *out << family.name; }

struct Message {
  Frame frame;
  std::vector<std::byte> payload;

  bool operator==(const Message& other) const;
};

/// Draws every field and byte from (from, to, stream, index), so that nothing matches by chance.
Message make_message(std::uint32_t from, std::uint32_t to, std::uint32_t stream, std::size_t index,
                     std::uint32_t payload_bytes);

using PeerStream = std::pair<std::uint32_t, std::uint32_t>;

/// Records the events of a transport and checks conditions that must be true at every call. A test
/// can hook in for more.
class RecordingSink final : public Sink {
 public:
  void connected(std::uint32_t peer, Link& link) override;
  void refused(std::uint32_t peer, const std::string& reason) override;
  std::byte* place(std::uint32_t peer, const Frame& frame) override;
  void arrived(std::uint32_t peer, std::uint32_t stream, const Frame& frame,
               std::span<const std::byte> payload) override;
  void stream_lost(std::uint32_t peer, std::uint32_t stream, const std::string& reason) override;
  void stream_opened(std::uint32_t peer, std::uint32_t stream) override;
  void unreachable(std::uint32_t peer, const std::string& reason) override;

  std::map<std::uint32_t, Link*> links;
  std::map<PeerStream, std::vector<Message>> received;
  std::map<PeerStream, std::string> lost;                    ///< the reason
  std::map<PeerStream, std::size_t> opened;                  ///< times
  std::map<std::uint32_t, std::string> unreachable_peers{};  ///< the reason
  std::size_t num_received = 0;
  std::size_t num_placed = 0;

  std::function<std::byte*(std::uint32_t peer, const Frame&)> on_place;
  std::function<void(std::uint32_t peer, std::uint32_t stream, const Frame&,
                     std::span<const std::byte>)>
      on_arrived;
};

/// One rank of a world: its driver (the caller of poll() or drive_until()), its events, and the
/// messages that it has sent, which stay valid as long as it lives.
class TransportRank {
 public:
  using Condition = std::function<bool()>;

  TransportRank(std::uint32_t rank, const TransportFamily& family) : rank_(rank), family_(family) {}

  bool poll() { return transport->poll(sink); }
  /// Polls, and sleeps if there is nothing to do, like the engine's driver. Returns false if the
  /// condition is not true within kPatience.
  bool drive_until(const Condition& condition);
  [[nodiscard]] Link& link(std::uint32_t peer) const { return *sink.links.at(peer); }
  /// Sends the next message on this stream, or a smaller one if the stream does not accept so much.
  /// Returns false if the link refused it.
  bool try_send(std::uint32_t peer, std::uint32_t stream, std::uint32_t payload_bytes);

  Doorbell doorbell;
  std::atomic<bool> asleep{
      false};  ///< for other threads: it will not move unless something wakes it
  RecordingSink sink;
  std::unique_ptr<Transport> transport;
  std::map<PeerStream, std::vector<Message>> sent;

 private:
  void sleep(const Condition& condition, TimePoint deadline);

  const std::uint32_t rank_;
  const TransportFamily& family_;
};

/// Connected ranks of one family.
class TransportWorld {
 public:
  /// Throws if the ranks do not connect within kPatience.
  TransportWorld(const TransportFamily& family, std::uint32_t world_size);
  /// Destroys transports before the objects that they use: doorbells, sent messages, shared wires.
  ~TransportWorld();
  TransportWorld(const TransportWorld&) = delete;
  TransportWorld& operator=(const TransportWorld&) = delete;

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  [[nodiscard]] TransportRank& operator[](std::uint32_t rank) const { return *ranks_[rank]; }
  [[nodiscard]] std::uint32_t num_streams() const { return num_streams_; }
  [[nodiscard]] std::uint32_t max_payload(std::uint32_t stream) const {
    return family_.max_payload(stream);
  }

  // The functions below drive all ranks from the calling thread.
  bool poll();
  bool poll_until(const TransportRank::Condition& condition);
  /// Like try_send(), but throws if the stream accepts nothing within kPatience.
  void send(std::uint32_t from, std::uint32_t to, std::uint32_t stream,
            std::uint32_t payload_bytes);
  /// Sends messages, and polls only the sender, until the stream accepts no more. Returns their
  /// number.
  std::size_t fill(std::uint32_t from, std::uint32_t to, std::uint32_t stream,
                   std::uint32_t payload_bytes);

  /// Runs `body` for every rank on its own thread, which then drives the rank until all bodies have
  /// ended, because a message may need its sender to arrive.
  void run_threads(const std::function<void(std::uint32_t rank)>& body);

  [[nodiscard]] std::size_t num_sent_to(std::uint32_t rank) const;
  [[nodiscard]] bool all_arrived() const;
  /// Checks that every rank has received exactly what was sent to it, in order on each stream.
  void expect_equal() const;
  void expect_delivered();

 private:
  const TransportFamily family_;
  std::vector<std::unique_ptr<TransportRank>> ranks_;
  std::shared_ptr<void> shared_;
  std::uint32_t num_streams_ = 0;
};

/// The number of open descriptors of this process.
std::size_t count_descriptors();

}  // namespace slipstream::test
