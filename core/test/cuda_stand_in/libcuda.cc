// A stand-in for the CUDA driver, which runs on a fake device. It tests the code that calls the
// driver on machines without one. It has the functions of device/cuda/cuda_api.h and one GPU.

#include <cstring>
#include <string_view>

#include "device/cuda/cuda_api.h"
#include "device/fake/fake_device.h"
#include "slipstream/error.h"
#include "test/cuda_stand_in/gpu.h"

namespace slipstream {
namespace {

constexpr CudaResult kInvalidContext = 201;

FakeDevice& gpu() { return stand_in_gpu(); }

void* context() {
  static int made = 0;
  return &made;
}

thread_local CudaHandle current = nullptr;
thread_local CudaHandle before = nullptr;

CudaResult result_of(const Error& error) {
  const std::string_view text = error.what();
  if (text.find("registered already") != text.npos) return kCudaHostMemoryAlreadyRegistered;
  if (text.find("not registered") != text.npos) return kCudaHostMemoryNotRegistered;
  if (text.find("are left") != text.npos) return kCudaOutOfMemory;
  return error.kind() == ErrorKind::kUsage ? kCudaInvalidValue : kCudaUnknown;
}

/// Runs an action if the context is current, which most calls require.
template <typename Action>
CudaResult in_context(const Action& action) {
  if (current != context()) return kInvalidContext;
  try {
    action();
    return kCudaSuccess;
  } catch (const Error& error) {
    return result_of(error);
  }
}

StreamHandle stream_of(CudaHandle handle) {
  return StreamHandle{reinterpret_cast<std::uintptr_t>(handle)};
}
EventHandle event_of(CudaHandle handle) {
  return EventHandle{reinterpret_cast<std::uintptr_t>(handle)};
}
template <typename Handle>
CudaHandle handle_of(Handle handle) {
  return reinterpret_cast<CudaHandle>(handle);
}

}  // namespace
}  // namespace slipstream

using namespace slipstream;  // NOLINT(google-build-using-namespace): the names of C come below

extern "C" {

CudaResult cuInit(unsigned flags) { return flags == 0 ? kCudaSuccess : kCudaInvalidValue; }

CudaResult cuGetErrorName(CudaResult result, const char** name) {
  *name = result == kCudaInvalidValue ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OF_THE_STAND_IN";
  return kCudaSuccess;
}

CudaResult cuGetErrorString(CudaResult, const char** text) {
  *text = "the stand-in refused";
  return kCudaSuccess;
}

CudaResult cuDriverGetVersion(int* version) {
  *version = 12040;
  return kCudaSuccess;
}

CudaResult cuDeviceGetCount(int* count) {
  *count = 1;
  return kCudaSuccess;
}

CudaResult cuDeviceGet(CudaDeviceNumber* device, int ordinal) {
  *device = 7;  // not the ordinal
  return ordinal == 0 ? kCudaSuccess : kCudaInvalidDevice;
}

CudaResult cuDeviceGetName(char* name, int size, CudaDeviceNumber device) {
  std::strncpy(name, "a stand-in", static_cast<std::size_t>(size));
  return device == 7 ? kCudaSuccess : kCudaInvalidDevice;
}

CudaResult cuDeviceTotalMem_v2(std::size_t* num_bytes, CudaDeviceNumber device) {
  *num_bytes = 2UL << 30;
  return device == 7 ? kCudaSuccess : kCudaInvalidDevice;
}

CudaResult cuDeviceGetAttribute(int* value, int attribute, CudaDeviceNumber device) {
  *value = attribute == kCudaHostRegisterSupported || attribute == kCudaCanUse64BitStreamMemOps;
  return device == 7 ? kCudaSuccess : kCudaInvalidDevice;
}

CudaResult cuDevicePrimaryCtxRetain(CudaHandle* retained, CudaDeviceNumber device) {
  *retained = context();
  return device == 7 ? kCudaSuccess : kCudaInvalidDevice;
}

CudaResult cuDevicePrimaryCtxRelease_v2(CudaDeviceNumber device) {
  return device == 7 ? kCudaSuccess : kCudaInvalidDevice;
}

CudaResult cuCtxGetCurrent(CudaHandle* found) {
  *found = current;
  return kCudaSuccess;
}

CudaResult cuCtxPushCurrent_v2(CudaHandle pushed) {
  before = current;
  current = pushed;
  return kCudaSuccess;
}

CudaResult cuCtxPopCurrent_v2(CudaHandle* popped) {
  *popped = current;
  current = before;
  return kCudaSuccess;
}

CudaResult cuMemAlloc_v2(std::uint64_t* address, std::size_t num_bytes) {
  return in_context([&] { *address = gpu().allocate(num_bytes); });
}

CudaResult cuMemFree_v2(std::uint64_t address) {
  return in_context([&] { gpu().free(address); });
}

CudaResult cuMemHostRegister_v2(void* memory, std::size_t num_bytes, unsigned flags) {
  if (flags != (kCudaHostRegisterPortable | kCudaHostRegisterDeviceMap)) return kCudaInvalidValue;
  return in_context([&] { gpu().register_host({static_cast<std::byte*>(memory), num_bytes}); });
}

CudaResult cuMemHostUnregister(void* memory) {
  return in_context([&] { gpu().unregister_host(static_cast<std::byte*>(memory)); });
}

CudaResult cuMemHostGetDevicePointer_v2(std::uint64_t* address, void* memory, unsigned flags) {
  *address = FakeMemory::device_address_of(memory);
  return flags == 0 ? kCudaSuccess : kCudaInvalidValue;
}

CudaResult cuMemcpyDtoHAsync_v2(void* target, std::uint64_t source, std::size_t num_bytes,
                                CudaHandle stream) {
  return in_context([&] {
    gpu().copy_to_host(stream_of(stream), static_cast<std::byte*>(target), source, num_bytes);
  });
}

CudaResult cuMemcpyHtoDAsync_v2(std::uint64_t target, const void* source, std::size_t num_bytes,
                                CudaHandle stream) {
  return in_context([&] {
    gpu().copy_to_device(stream_of(stream), target, static_cast<const std::byte*>(source),
                         num_bytes);
  });
}

CudaResult cuStreamCreate(CudaHandle* stream, unsigned flags) {
  if (flags != kCudaStreamNonBlocking) return kCudaInvalidValue;
  return in_context([&] { *stream = handle_of(gpu().make_stream()); });
}

CudaResult cuStreamDestroy_v2(CudaHandle stream) {
  return in_context([&] { gpu().destroy(stream_of(stream)); });
}

CudaResult cuStreamSynchronize(CudaHandle stream) {
  return in_context([&] { gpu().synchronize(stream_of(stream)); });
}

CudaResult cuStreamWaitEvent(CudaHandle stream, CudaHandle event, unsigned flags) {
  if (flags != 0) return kCudaInvalidValue;
  return in_context([&] { gpu().wait_event(stream_of(stream), event_of(event)); });
}

CudaResult cuStreamWaitValue32_v2(CudaHandle stream, std::uint64_t word, std::uint32_t value,
                                  unsigned flags) {
  if (flags != kCudaStreamWaitValueGeq) return kCudaInvalidValue;
  return in_context([&] { gpu().wait_word(stream_of(stream), word, value); });
}

CudaResult cuStreamWriteValue32_v2(CudaHandle stream, std::uint64_t word, std::uint32_t value,
                                   unsigned flags) {
  if (flags != kCudaStreamWriteValueDefault) return kCudaInvalidValue;
  return in_context([&] { gpu().write_word(stream_of(stream), word, value); });
}

CudaResult cuEventCreate(CudaHandle* event, unsigned flags) {
  if (flags != kCudaEventDisableTiming) return kCudaInvalidValue;
  return in_context([&] { *event = handle_of(gpu().make_event()); });
}

CudaResult cuEventDestroy_v2(CudaHandle event) {
  return in_context([&] { gpu().destroy(event_of(event)); });
}

CudaResult cuEventRecord(CudaHandle event, CudaHandle stream) {
  return in_context([&] { gpu().record(stream_of(stream), event_of(event)); });
}

CudaResult cuEventQuery(CudaHandle event) {
  bool is_done = false;
  const CudaResult result = in_context([&] { is_done = gpu().is_done(event_of(event)); });
  return result == kCudaSuccess && !is_done ? kCudaNotReady : result;
}

}  // extern "C"
