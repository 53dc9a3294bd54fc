#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/doorbell.h"
#include "slipstream/log.h"
#include "transport/handshake.h"
#include "transport/identity.h"
#include "transport/refusal_log.h"
#include "transport/shm/introduction.h"
#include "transport/shm/shm_link.h"
#include "transport/transport.h"

namespace slipstream {

/// Options of the shared memory between ranks of one host. The sizes must be equal on all ranks.
/// For each pair of ranks and each direction, the memory has num_slots * segment_bytes +
/// num_control_slots * eager_bytes bytes, which are allocated at first use.
struct ShmOptions {
  std::uint32_t segment_bytes = 128 * 1024;  ///< payload of a frame on stream 1, 1..256 KB
  std::uint32_t num_slots = 8;               ///< slots for segments, 1..1024
  std::uint32_t eager_bytes = 8192;          ///< payload of a frame on stream 0, 1..256 KB
  std::uint32_t num_control_slots = 64;      ///< 2..65536
  Clock::duration handshake_deadline = kHandshakeDeadline;
  Log log{};
};

/// Shared memory with the other ranks of this host. Each pair has one channel (a memfd) of rings.
/// The Unix socket over which it was passed stays open and silent, so that the kernel reports when
/// a peer has ended. There are no names in the file system, so nothing must be cleaned up.
///
/// Peers ring our doorbell when they send, or when they free a slot after ready() or send() has
/// returned false. poll() checks sockets at most every 10 ms (100 us while a peer is being
/// introduced), and next_event() asks for a check every 100 ms. While peers may still dial, it asks
/// every 1 ms: for handshake_deadline from the start, or until all higher ranks have dialled.
class ShmTransport final : public Transport {
 public:
  /// Listens at once. `own_bell` must outlive the transport. Throws Error(kConfig) if it cannot
  /// listen.
  ShmTransport(const Identity& identity, const ShmOptions& options, const Doorbell& own_bell);
  ShmTransport(const ShmTransport&) = delete;
  ShmTransport& operator=(const ShmTransport&) = delete;
  ~ShmTransport() override { close(); }

  /// The name that higher ranks dial: 128 random bits, valid in this network namespace.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Connects to a lower rank, which is then reported by connected() or refused(). Returns false at
  /// once, and does nothing else, if nobody listens under `name` within reach of this process: the
  /// peer is on another host or in another network namespace. Never blocks.
  bool dial(std::uint32_t peer, const std::string& name);

  bool poll(Sink& sink) override;
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool has_links() const override { return !links_.empty(); }
  [[nodiscard]] TimePoint next_event() const override;
  /// Must not be called from within a call of the sink.
  void close() override;

 private:
  bool receive(Sink& sink);
  bool look_at_sockets(Sink& sink, TimePoint now);
  bool take_socket_events(Sink& sink);
  void accept_all();
  bool advance_introductions(Sink& sink, TimePoint now);
  void connect(Introduction& introduction, Sink& sink);
  void give_up(const Introduction& introduction, Sink& sink);
  bool drop_broken(Sink& sink);
  void lose(ShmLink* link, const std::string& reason, Sink& sink);
  void watch(int fd, std::uint64_t tag);
  [[nodiscard]] std::string admit(std::uint32_t peer) const;
  [[nodiscard]] bool peers_may_dial(TimePoint now) const;

  ShmSelf self_;
  Log log_;
  RefusalLog refusals_;
  std::string name_;
  Descriptor epoll_;
  Descriptor listener_;  // empty once closed
  TimePoint opened_;
  TimePoint last_look_{};
  std::uint32_t polls_ = 0;
  std::uint32_t missing_diallers_;  // higher ranks that have not connected
  bool accept_failed_ = false;
  std::vector<std::unique_ptr<Introduction>> introductions_;
  // All links that ever existed, because the engine refers to them.
  std::vector<std::unique_ptr<ShmLink>> links_;
  std::vector<ShmLink*> alive_;
  std::vector<bool> connected_;  // by rank; never reset
};

}  // namespace slipstream
