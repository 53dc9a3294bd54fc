#pragma once

#include <cstddef>
#include <span>

#include "base/descriptor.h"
#include "base/fork.h"

namespace slipstream {

/// Anonymous memory that another process can map. It has no name and needs no clean-up.
Descriptor make_memory_fd(const char* label, std::size_t bytes);

/// A shared mapping of a memory descriptor, which a forked child does not inherit. The descriptor
/// may be closed once it is mapped.
class SharedMapping {
 public:
  SharedMapping() = default;
  SharedMapping(int fd, std::size_t bytes);
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  Origin origin_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace slipstream
