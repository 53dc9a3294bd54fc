// Kernels of the measurements. Host memory that they touch is registered and mapped.

#include <cstdint>

extern "C" {

__global__ void nothing() {}

__global__ void fill_pattern(uint32_t* words, uint64_t count, uint32_t seed) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = seed + static_cast<uint32_t>(i);
  }
}

// Four loads of 16 bytes are in flight per thread: reads over PCIe need them.
__device__ void copy_all(uint4* to, const uint4* from, uint64_t count) {
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a;
    to[i + step] = b;
    to[i + 2 * step] = c;
    to[i + 3 * step] = d;
  }
  for (; i < count; i += step) to[i] = from[i];
}

__global__ void copy_words(uint4* to, const uint4* from, uint64_t count) {
  copy_all(to, from, count);
}

// What an encoding kernel would do: it stores straight into host memory, and the last block to end
// says that the data is ready.
__global__ void copy_words_and_flag(uint4* to, const uint4* from, uint64_t count, uint32_t* ended,
                                    volatile uint32_t* ready, uint32_t value) {
  copy_all(to, from, count);
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (atomicAdd(ended, 1) + 1 == gridDim.x) {
    *ended = 0;
    __threadfence_system();
    *ready = value;
  }
}

__global__ void set_flag(volatile uint32_t* ready, uint32_t value) {
  __threadfence_system();
  *ready = value;
}

__global__ void spin_until(const volatile uint32_t* word, uint32_t value) {
  while (static_cast<int32_t>(*word - value) < 0) __nanosleep(100);
  __threadfence_system();
}

// Arithmetic that fills every multiprocessor it is launched on.
__global__ void busy(uint64_t turns, float* result) {
  float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
  for (uint64_t i = 0; i < turns; ++i) {
    a = a * 0.999f + 0.1f;
    b = b * 0.999f + 0.1f;
    c = c * 0.999f + 0.1f;
    d = d * 0.999f + 0.1f;
  }
  if (a + b + c + d == -1.0f) *result = a;
}

}  // extern "C"
