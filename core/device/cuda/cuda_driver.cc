#include "device/cuda/cuda_driver.h"

#include <dlfcn.h>

#include <array>

#include "slipstream/error.h"

namespace slipstream {
namespace {

struct Advice {
  CudaResult result;
  ErrorKind kind;
  const char* text;
};

constexpr std::array kAdvice{
    Advice{kCudaOutOfMemory, ErrorKind::kConfig,
           "free memory of the GPU or of the host, or stage through fewer slots"},
    Advice{kCudaNotInitialized, ErrorKind::kInternal, "please report it"},
    Advice{kCudaDeinitialized, ErrorKind::kUsage,
           "the process is about to exit; end all communication earlier"},
    Advice{kCudaNoDevice, ErrorKind::kUnsupported,
           "check that nvidia-smi lists a GPU and that CUDA_VISIBLE_DEVICES does not hide it"},
    Advice{kCudaInvalidDevice, ErrorKind::kUsage,
           "name one of the GPUs that CUDA_VISIBLE_DEVICES lists"},
    Advice{kCudaInvalidHandle, ErrorKind::kUsage,
           "a stream or an event was destroyed too early, or the process has forked; destroy them "
           "after their last use, and use CUDA only in the process that initialised it"},
    Advice{kCudaIllegalAddress, ErrorKind::kInternal,
           "a kernel accessed memory outside its buffers, and the process has lost the GPU; "
           "run it with CUDA_LAUNCH_BLOCKING=1 to find the kernel"},
    Advice{kCudaLaunchFailed, ErrorKind::kInternal,
           "a kernel failed, and the process has lost the GPU; run it with CUDA_LAUNCH_BLOCKING=1 "
           "to find the kernel"},
    Advice{kCudaHostMemoryAlreadyRegistered, ErrorKind::kUsage,
           "another library has pinned a part of this memory; unpin it first"},
    Advice{kCudaHostMemoryNotRegistered, ErrorKind::kUsage,
           "this process has not pinned the memory; pin it first"},
    Advice{kCudaNotSupported, ErrorKind::kUnsupported,
           "this GPU or this kind of virtual machine does not support the call; use tensors of the "
           "CPU"},
    Advice{kCudaSystemDriverMismatch, ErrorKind::kUnsupported,
           "the driver was updated, but its kernel module was not; reboot the host"},
};

constexpr Advice kCapture{kCudaStreamCaptureUnsupported, ErrorKind::kUsage,
                          "the stream is being captured into a CUDA graph; keep collectives that "
                          "go through the host out of the graph"};
constexpr Advice kNoAdvice{kCudaUnknown, ErrorKind::kInternal, "please report it"};

const Advice& advice_for(CudaResult result) {
  if (result >= kCudaStreamCaptureUnsupported && result <= kCudaStreamCaptureLast) return kCapture;
  for (const Advice& each : kAdvice) {
    if (each.result == result) return each;
  }
  return kNoAdvice;
}

void* open_library(const std::string& name) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(ErrorKind::kUnsupported, "the CUDA driver cannot be loaded: dlopen failed: ", ::dlerror(),
         "; install NVIDIA's driver, or use tensors of the CPU");
  }
  return library;
}

template <typename Function>
void find(void* library, const std::string& library_name, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function != nullptr) return;
  fail(ErrorKind::kUnsupported, "the CUDA driver is too old: ", library_name, " has no ", name,
       "; install a driver for CUDA 11.7 or later (515 or later)");
}

}  // namespace

CudaDriver::CudaDriver(const std::string& library) {
  void* opened = open_library(library);
#define SLIPSTREAM_CUDA_FIND(name, ...) find(opened, library, #name, api_.name);
  SLIPSTREAM_CUDA_FUNCTIONS(SLIPSTREAM_CUDA_FIND)
#undef SLIPSTREAM_CUDA_FIND
  SLIPSTREAM_CUDA(*this, cuInit, 0);
}

int CudaDriver::cuda_version() const {
  int version = 0;
  SLIPSTREAM_CUDA(*this, cuDriverGetVersion, &version);
  return version;
}

int CudaDriver::num_devices() const {
  int count = 0;
  SLIPSTREAM_CUDA(*this, cuDeviceGetCount, &count);
  return count;
}

std::string CudaDriver::name_of(CudaDeviceNumber device) const {
  std::array<char, 256> name{};
  SLIPSTREAM_CUDA(*this, cuDeviceGetName, name.data(), static_cast<int>(name.size()), device);
  return name.data();
}

std::size_t CudaDriver::memory_bytes_of(CudaDeviceNumber device) const {
  std::size_t num_bytes = 0;
  SLIPSTREAM_CUDA(*this, cuDeviceTotalMem_v2, &num_bytes, device);
  return num_bytes;
}

std::string CudaDriver::describe(CudaResult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api_.cuGetErrorName(result, &name) != kCudaSuccess || name == nullptr) {
    return concat("unknown result ", result);
  }
  const bool has_text = api_.cuGetErrorString(result, &text) == kCudaSuccess && text != nullptr;
  return concat(name, " (", result, has_text ? concat(", ", text) : "", ")");
}

void CudaDriver::check(CudaResult result, const char* function) const {
  if (result == kCudaSuccess) return;
  const Advice& advice = advice_for(result);
  fail(advice.kind, function, " failed: ", describe(result), "; ", advice.text);
}

}  // namespace slipstream
