#pragma once

#include <cstdint>

namespace slipstream {

/// Keeps `fd` in the list of descriptors that a forked child closes at once, so that a peer sees a
/// dead rank as dead while its data-loader workers live on.
void close_on_fork(int fd);

/// Takes `fd` off that list; call before closing it.
void forget_on_fork(int fd) noexcept;

/// Remembers the process that made an object: a forked child has a copy, which it leaves alone.
class Origin {
 public:
  Origin() noexcept;
  /// Whether this is the process that made it.
  [[nodiscard]] bool is_here() const noexcept;
  /// Throws Error(kUsage) in any other process.
  void check() const;

 private:
  std::uint64_t num_forks_;
};

}  // namespace slipstream
