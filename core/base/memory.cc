#include "base/memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {

Descriptor make_memory_fd(const char* label, std::size_t bytes) {
  Descriptor fd(::memfd_create(label, MFD_CLOEXEC), "memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    fail(ErrorKind::kInternal, "ftruncate of ", bytes,
         " bytes of shared memory failed: ", std::strerror(errno));
  }
  return fd;
}

SharedMapping::SharedMapping(int fd, std::size_t bytes) : bytes_(bytes) {
  struct stat status{};
  if (::fstat(fd, &status) != 0 || static_cast<std::size_t>(status.st_size) < bytes) {
    fail(ErrorKind::kPeer, "sent shared memory of ", status.st_size, " bytes; this rank expects ",
         bytes, " bytes: install the same version of Slipstream for all ranks of the host");
  }
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    fail(ErrorKind::kInternal, "mmap of ", bytes, " bytes failed: ", std::strerror(errno));
  }
  ::madvise(address, bytes, MADV_DONTFORK);
  data_ = static_cast<std::byte*>(address);
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : origin_(other.origin_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(origin_, other.origin_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMapping::~SharedMapping() {
  // Because of MADV_DONTFORK, the range may belong to another mapping in a forked child.
  if (data_ != nullptr && origin_.is_here()) ::munmap(data_, bytes_);
}

}  // namespace slipstream
