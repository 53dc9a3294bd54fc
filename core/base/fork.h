#pragma once

#include <cstdint>

namespace slipstream {

/// Adds `fd` to the descriptors that a forked child closes at once. Peers can then notice that a
/// rank has died although its data-loader workers live on.
void close_on_fork(int fd);

/// Removes `fd` from that list. Call it before closing the descriptor.
void forget_on_fork(int fd) noexcept;

/// Remembers which process made an object. The copy in a forked child must not release what it
/// owns.
class Origin {
 public:
  Origin() noexcept;
  /// Whether this is the process that made the object.
  [[nodiscard]] bool is_here() const noexcept;
  /// Throws Error(kUsage) in any other process.
  void check() const;

 private:
  std::uint64_t num_forks_;
};

}  // namespace slipstream
