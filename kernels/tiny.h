#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slipstream::kernels {

/// While this object exists, its thread treats numbers below 1.2e-38 as zeros. Softmax gives such
/// numbers to tokens that are masked out, and products with them take many times as long on some
/// processors.
class TinyAsZero {
 public:
#if defined(__x86_64__)
  TinyAsZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kTinyResults | kTinyOperands); }
  ~TinyAsZero() { _mm_setcsr(before_); }
#else
  TinyAsZero() = default;
  ~TinyAsZero() = default;
#endif
  TinyAsZero(const TinyAsZero&) = delete;
  TinyAsZero& operator=(const TinyAsZero&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kTinyResults = 0x8000;  // FTZ
  static constexpr unsigned kTinyOperands = 0x40;   // DAZ
  unsigned before_;
#endif
};

}  // namespace slipstream::kernels
