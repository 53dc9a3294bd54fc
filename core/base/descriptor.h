#pragma once

#include <string_view>
#include <utility>

#include "base/fork.h"

namespace slipstream {

/// Owns a file descriptor. All descriptors are close-on-exec, and a forked child closes them (see
/// fork.h).
class Descriptor {
 public:
  Descriptor() = default;
  /// Takes ownership of `fd`. If it is negative, throws Error(kInternal) with the name of the
  /// failed `call` and errno's text.
  Descriptor(int fd, std::string_view call);
  Descriptor(Descriptor&& other) noexcept
      : origin_(other.origin_), fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  Origin origin_;
  int fd_ = -1;
};

}  // namespace slipstream
