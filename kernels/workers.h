#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace slipstream::kernels {

/// Threads that share out the parts of one piece of work after another. The caller is one of them,
/// and never waits for a thread that has not begun: on a busy machine it does all parts itself.
/// Between pieces threads spin for a while, then sleep.
class Workers {
 public:
  explicit Workers(std::size_t threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  [[nodiscard]] std::size_t threads() const { return threads_.size() + 1; }

  /// Calls work(part) for every part in [0, parts), on any thread, and returns when all are done.
  /// One caller at a time.
  void share(std::size_t parts, const std::function<void(std::size_t)>& work);

 private:
  void serve();
  void take_parts();
  void wait_for(std::uint32_t seen);
  bool join(std::uint64_t state);

  std::vector<std::thread> threads_;
  const std::function<void(std::size_t)>* work_ = nullptr;  // changes only while nobody has joined
  std::size_t parts_ = 0;                                   // likewise
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> state_{0};  // number of the piece, whether it is open, who has joined
  std::atomic<std::size_t> asleep_{0};
  std::atomic<bool> closing_{false};
  std::mutex mutex_;
  std::condition_variable called_;
};

}  // namespace slipstream::kernels
