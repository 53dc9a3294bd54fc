#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace slipstream::kernels {

/// Allocates on cache lines, which are also the widest vectors.
template <typename T>
struct CacheLines {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};

  CacheLines() = default;
  template <typename U>
  CacheLines(const CacheLines<U>& /*other*/) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* pointer, std::size_t /*count*/) { ::operator delete(pointer, kAlignment); }
  template <typename U>
  bool operator==(const CacheLines<U>& /*other*/) const {
    return true;
  }
};

template <typename T>
using Aligned = std::vector<T, CacheLines<T>>;

}  // namespace slipstream::kernels
