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

/// A pool of threads that share the parts of one piece of work after another. The caller is one of
/// the threads, and never waits for a thread that has not begun: on a busy machine it does all
/// parts itself. Each thread begins with the same share of the parts every time, so that its caches
/// contain the results of its earlier pieces; afterwards it helps the others. Between pieces the
/// threads spin for a while, then sleep.
class Workers {
 public:
  explicit Workers(std::size_t threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  [[nodiscard]] std::size_t threads() const { return threads_.size() + 1; }

  /// Calls work(part) for every part in [0, parts), on any thread, and returns when all are done.
  /// Only one caller may use a pool at a time.
  void share(std::size_t parts, const std::function<void(std::size_t)>& work);

 private:
  /// The parts with which one thread begins.
  struct alignas(64) Share {
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };

  void serve(std::size_t thread);
  void take_parts(std::size_t thread);
  void wait_for(std::uint32_t seen);
  bool join(std::uint64_t state, std::size_t thread);

  std::vector<std::thread> threads_;
  const std::function<void(std::size_t)>* work_ = nullptr;  // changes only while none has joined
  std::vector<Share> shares_;                               // changes only while none has joined
  std::atomic<std::uint64_t> state_{0};  // number of the piece, open bit, number of joined
  std::atomic<std::size_t> asleep_{0};
  std::atomic<bool> closing_{false};
  std::mutex mutex_;
  std::condition_variable called_;
};

}  // namespace slipstream::kernels
