#pragma once

// Highway has AVX-512 as one target (AVX3); its next target (AVX3_DL) needs all extensions of Ice
// Lake. Two useful extensions are in between: dot products of bytes, since Cascade Lake, and dot
// products of bfloat16. So some kernels are compiled for AVX3 at three levels: 0 as Highway has it,
// 1 with AVX512_VNNI, 2 with AVX512_BF16 as well.
namespace slipstream::kernels {

/// The level of this CPU.
inline int level() {
#if defined(__x86_64__)
  static const int found = [] {
    if (__builtin_cpu_supports("avx512bw") == 0 || __builtin_cpu_supports("avx512dq") == 0 ||
        __builtin_cpu_supports("avx512vl") == 0 || __builtin_cpu_supports("avx512vnni") == 0) {
      return 0;
    }
    return __builtin_cpu_supports("avx512bf16") == 0 ? 1 : 2;
  }();
  return found;
#else
  return 0;
#endif
}

}  // namespace slipstream::kernels
