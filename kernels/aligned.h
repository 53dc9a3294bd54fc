#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace slipstream::kernels {

/// Allocator that aligns memory to cache lines, which are also the widest vectors. Large blocks are
/// on large pages: the weights of BERT take 83,000 small pages, and the first write to each is a
/// page fault.
template <typename T>
struct CacheLines {
  using value_type = T;
  static constexpr std::size_t kLine = 64, kLargePage = 2UL << 20;

  CacheLines() = default;
  template <typename U>
  CacheLines(const CacheLines<U>& /*other*/) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    void* memory = ::operator new(count * sizeof(T), alignment(count));
    // A hint only: without large pages, small ones work as well.
    if (is_large(count)) (void)madvise(memory, count * sizeof(T), MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* pointer, std::size_t count) { ::operator delete(pointer, alignment(count)); }
  static bool is_large(std::size_t count) { return count * sizeof(T) >= 2 * kLargePage; }
  static std::align_val_t alignment(std::size_t count) {
    return std::align_val_t{is_large(count) ? kLargePage : kLine};
  }
  template <typename U>
  bool operator==(const CacheLines<U>& /*other*/) const {
    return true;
  }
};

template <typename T>
using Aligned = std::vector<T, CacheLines<T>>;

}  // namespace slipstream::kernels
