#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace slipstream::kernels {

/// Threads that share out the parts of one piece of work after another. The caller is one of them.
/// Between pieces they spin for a while, then sleep.
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

  std::vector<std::thread> threads_;
  const std::function<void(std::size_t)>* work_ = nullptr;
  std::size_t parts_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> busy_{0};     // threads that have not finished this piece
  std::atomic<std::uint64_t> piece_{0};  // counts pieces of work; odd ends of spinning wait on it
  std::atomic<bool> closing_{false};
  std::mutex mutex_;
  std::condition_variable called_;
};

}  // namespace slipstream::kernels
