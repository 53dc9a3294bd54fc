#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "test/transport_world.h"
#include "transport/tcp/tcp_transport.h"

namespace slipstream::test {

/// A relay between TCP connections of this process that cuts each one after a random number of
/// bytes: with a reset, in order, or at one end only, so that the other end hears nothing.
class CuttingRelay {
 public:
  /// `mean_bytes` is the mean number of bytes that a connection carries until it is cut.
  CuttingRelay(std::uint64_t seed, double mean_bytes);
  CuttingRelay(const CuttingRelay&) = delete;
  CuttingRelay& operator=(const CuttingRelay&) = delete;
  ~CuttingRelay();

  /// The endpoint at which the relay takes connections to `target`.
  std::string way_to(const std::string& target);
  /// Cuts all connections now, with resets.
  void cut_all();
  [[nodiscard]] std::uint64_t num_cuts() const { return num_cuts_; }

 private:
  struct Door {
    Descriptor socket;
    std::string target;
  };
  struct Pair {  // of the connector and the acceptor
    Descriptor ends[2];
    std::vector<std::byte> held[2];  // read from the end and not written to the other one
    std::size_t budget = 0;          // bytes until the cut
    bool over = false;
  };

  void run();
  /// Takes the connections that wait. Returns false if nobody listens at the target any more; then
  /// nobody must listen at the door either.
  bool admit(const Door& door);
  void move(Pair& pair, int from);
  void cut(Pair& pair);

  std::mutex mutex_;  // guards all but the atomics
  std::mt19937_64 random_;
  std::exponential_distribution<double> length_;
  std::list<Door> doors_;
  std::list<Pair> pairs_;
  std::vector<Descriptor> mute_;  // ends of connections that were cut at the other end only
  std::atomic<std::uint64_t> num_cuts_ = 0;
  std::atomic<bool> closing_ = false;
  std::thread thread_;
};

/// Ranks whose connections are cut, over loopback.
TransportFamily cut_family(const TcpOptions& options, std::shared_ptr<CuttingRelay> relay);

}  // namespace slipstream::test
