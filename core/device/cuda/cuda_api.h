#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream {

// Our own declarations of the part of the CUDA driver's API that is used here, so that no toolkit
// is needed to build. They match cuda.h of CUDA 11.7 and later. A device address is a 64-bit
// number; contexts, streams and events are opaque pointers.
using CudaResult = int;
using CudaDeviceNumber = int;
using CudaHandle = void*;

// CUresult
constexpr CudaResult kCudaSuccess = 0, kCudaInvalidValue = 1, kCudaOutOfMemory = 2,
                     kCudaNotInitialized = 3, kCudaDeinitialized = 4, kCudaNoDevice = 100,
                     kCudaInvalidDevice = 101, kCudaInvalidHandle = 400, kCudaNotReady = 600,
                     kCudaIllegalAddress = 700, kCudaHostMemoryAlreadyRegistered = 712,
                     kCudaHostMemoryNotRegistered = 713, kCudaLaunchFailed = 719,
                     kCudaNotSupported = 801, kCudaSystemDriverMismatch = 803,
                     kCudaStreamCaptureUnsupported = 900, kCudaStreamCaptureLast = 908,
                     kCudaUnknown = 999;

// CUdevice_attribute
constexpr int kCudaHostRegisterSupported = 99, kCudaCanUse64BitStreamMemOps = 122;

constexpr unsigned kCudaStreamNonBlocking = 1;
constexpr unsigned kCudaEventDisableTiming = 2;
constexpr unsigned kCudaHostRegisterPortable = 1, kCudaHostRegisterDeviceMap = 2;
constexpr unsigned kCudaStreamWaitValueGeq = 0;
constexpr unsigned kCudaStreamWriteValueDefault = 0;  // with a barrier for what was written before

/// X(name as the library exports it, types of the parameters)
#define SLIPSTREAM_CUDA_FUNCTIONS(X)                                             \
  X(cuInit, unsigned)                                                            \
  X(cuGetErrorName, CudaResult, const char**)                                    \
  X(cuGetErrorString, CudaResult, const char**)                                  \
  X(cuDriverGetVersion, int*)                                                    \
  X(cuDeviceGetCount, int*)                                                      \
  X(cuDeviceGet, CudaDeviceNumber*, int)                                         \
  X(cuDeviceGetName, char*, int, CudaDeviceNumber)                               \
  X(cuDeviceTotalMem_v2, std::size_t*, CudaDeviceNumber)                         \
  X(cuDeviceGetAttribute, int*, int, CudaDeviceNumber)                           \
  X(cuDevicePrimaryCtxRetain, CudaHandle*, CudaDeviceNumber)                     \
  X(cuDevicePrimaryCtxRelease_v2, CudaDeviceNumber)                              \
  X(cuCtxGetCurrent, CudaHandle*)                                                \
  X(cuCtxPushCurrent_v2, CudaHandle)                                             \
  X(cuCtxPopCurrent_v2, CudaHandle*)                                             \
  X(cuMemAlloc_v2, std::uint64_t*, std::size_t)                                  \
  X(cuMemFree_v2, std::uint64_t)                                                 \
  X(cuMemHostRegister_v2, void*, std::size_t, unsigned)                          \
  X(cuMemHostUnregister, void*)                                                  \
  X(cuMemHostGetDevicePointer_v2, std::uint64_t*, void*, unsigned)               \
  X(cuMemcpyDtoHAsync_v2, void*, std::uint64_t, std::size_t, CudaHandle)         \
  X(cuMemcpyHtoDAsync_v2, std::uint64_t, const void*, std::size_t, CudaHandle)   \
  X(cuStreamCreate, CudaHandle*, unsigned)                                       \
  X(cuStreamDestroy_v2, CudaHandle)                                              \
  X(cuStreamSynchronize, CudaHandle)                                             \
  X(cuStreamWaitEvent, CudaHandle, CudaHandle, unsigned)                         \
  X(cuStreamWaitValue32_v2, CudaHandle, std::uint64_t, std::uint32_t, unsigned)  \
  X(cuStreamWriteValue32_v2, CudaHandle, std::uint64_t, std::uint32_t, unsigned) \
  X(cuEventCreate, CudaHandle*, unsigned)                                        \
  X(cuEventDestroy_v2, CudaHandle)                                               \
  X(cuEventRecord, CudaHandle, CudaHandle)                                       \
  X(cuEventQuery, CudaHandle)

/// Pointers to the driver's functions.
struct CudaApi {
#define SLIPSTREAM_CUDA_POINTER(name, ...) CudaResult (*name)(__VA_ARGS__) = nullptr;
  SLIPSTREAM_CUDA_FUNCTIONS(SLIPSTREAM_CUDA_POINTER)
#undef SLIPSTREAM_CUDA_POINTER
};

}  // namespace slipstream
