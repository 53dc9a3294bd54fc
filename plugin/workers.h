#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace slipstream::nccl {

class Comm;

/// Threads that move the data of comms beside NCCL's own thread. Each comm belongs to one of them.
/// Every communicator of NCCL adds its comms from a thread of its own.
class Workers {
 public:
  explicit Workers(std::uint32_t num_threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  void add(Comm& comm);
  /// Blocks until no thread uses the comm any more.
  void remove(Comm& comm);

 private:
  class Worker;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<std::uint64_t> num_added_ = 0;
};

}  // namespace slipstream::nccl
