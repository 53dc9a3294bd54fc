#include "base/descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "slipstream/error.h"

namespace slipstream {

Descriptor::Descriptor(int fd, std::string_view call) : fd_(fd) {
  if (fd < 0) fail(ErrorKind::kInternal, call, " failed: ", std::strerror(errno));
  close_on_fork(fd);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    origin_ = other.origin_;
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Descriptor::reset() noexcept {
  if (fd_ < 0) return;
  // A forked child has closed it already, and the number may belong to another file by now.
  if (origin_.is_here()) {
    forget_on_fork(fd_);
    ::close(fd_);
  }
  fd_ = -1;
}

}  // namespace slipstream
