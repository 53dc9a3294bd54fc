#include "device/cuda/cuda_device.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "gate/engine_thread.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

CudaHandle cuda(StreamHandle handle) { return reinterpret_cast<CudaHandle>(handle); }
CudaHandle cuda(EventHandle handle) { return reinterpret_cast<CudaHandle>(handle); }

template <typename Handle>
Handle handle_of(CudaHandle handle) {
  return Handle{reinterpret_cast<std::uintptr_t>(handle)};
}

}  // namespace

/// Makes the device's context current during a call, and checks that the thread may call.
/// Afterwards the thread has its own context again, because the CUDA runtime derives the current
/// device from the current context.
class CudaDevice::Call {
 public:
  Call(const CudaDevice& device, const char* name) : driver_(device.driver_) {
    EngineThread::refuse(name);
    device.origin_.check();  // the driver does not work in a forked child
    CudaHandle current = nullptr;
    SLIPSTREAM_CUDA(driver_, cuCtxGetCurrent, &current);
    if (current == device.context_) return;
    SLIPSTREAM_CUDA(driver_, cuCtxPushCurrent_v2, device.context_);
    pushed_ = true;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    CudaHandle popped = nullptr;
    if (pushed_) driver_.api().cuCtxPopCurrent_v2(&popped);
  }

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
};

CudaDevice::CudaDevice(const CudaDriver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  SLIPSTREAM_CUDA(driver_, cuDeviceGet, &device_, ordinal);
  require(kCudaHostRegisterSupported, "register host memory");
  // The attribute of 32-bit operations, 92, is 0 on an H100 that has them; this one is 1.
  require(kCudaCanUse64BitStreamMemOps, "wait for words of host memory");
  SLIPSTREAM_CUDA(driver_, cuDevicePrimaryCtxRetain, &context_, device_);
}

CudaDevice::~CudaDevice() {
  if (origin_.is_here()) driver_.api().cuDevicePrimaryCtxRelease_v2(device_);
}

int CudaDevice::attribute(int number) const {
  int value = 0;
  SLIPSTREAM_CUDA(driver_, cuDeviceGetAttribute, &value, number, device_);
  return value;
}

void CudaDevice::require(int attribute, const char* what) const {
  if (this->attribute(attribute) != 0) return;
  fail(ErrorKind::kUnsupported, describe(), " cannot ", what, " (device attribute ", attribute,
       " is 0); use tensors of the CPU");
}

std::string CudaDevice::describe() const {
  return concat(driver_.name_of(device_), " (CUDA device ", ordinal_, ")");
}

DeviceAddress CudaDevice::allocate(std::size_t num_bytes) {
  const Call call(*this, "allocate");
  DeviceAddress address = 0;
  SLIPSTREAM_CUDA(driver_, cuMemAlloc_v2, &address, num_bytes);
  return address;
}

void CudaDevice::free(DeviceAddress memory) {
  const Call call(*this, "free");
  SLIPSTREAM_CUDA(driver_, cuMemFree_v2, memory);
}

DeviceAddress CudaDevice::register_host(std::span<std::byte> memory) {
  const Call call(*this, "register_host");
  DeviceAddress address = 0;
  SLIPSTREAM_CUDA(driver_, cuMemHostRegister_v2, memory.data(), memory.size(),
                  kCudaHostRegisterPortable | kCudaHostRegisterDeviceMap);
  SLIPSTREAM_CUDA(driver_, cuMemHostGetDevicePointer_v2, &address, memory.data(), 0);
  return address;
}

void CudaDevice::unregister_host(std::byte* memory) {
  const Call call(*this, "unregister_host");
  SLIPSTREAM_CUDA(driver_, cuMemHostUnregister, memory);
}

StreamHandle CudaDevice::make_stream() {
  const Call call(*this, "make_stream");
  CudaHandle stream = nullptr;
  SLIPSTREAM_CUDA(driver_, cuStreamCreate, &stream, kCudaStreamNonBlocking);
  return handle_of<StreamHandle>(stream);
}

void CudaDevice::destroy(StreamHandle stream) {
  const Call call(*this, "destroy");
  SLIPSTREAM_CUDA(driver_, cuStreamDestroy_v2, cuda(stream));
}

EventHandle CudaDevice::make_event() {
  const Call call(*this, "make_event");
  CudaHandle event = nullptr;
  SLIPSTREAM_CUDA(driver_, cuEventCreate, &event, kCudaEventDisableTiming);
  return handle_of<EventHandle>(event);
}

void CudaDevice::destroy(EventHandle event) {
  const Call call(*this, "destroy");
  SLIPSTREAM_CUDA(driver_, cuEventDestroy_v2, cuda(event));
}

void CudaDevice::copy_to_host(StreamHandle stream, std::byte* target, DeviceAddress source,
                              std::size_t num_bytes) {
  const Call call(*this, "copy_to_host");
  SLIPSTREAM_CUDA(driver_, cuMemcpyDtoHAsync_v2, target, source, num_bytes, cuda(stream));
}

void CudaDevice::copy_to_device(StreamHandle stream, DeviceAddress target, const std::byte* source,
                                std::size_t num_bytes) {
  const Call call(*this, "copy_to_device");
  SLIPSTREAM_CUDA(driver_, cuMemcpyHtoDAsync_v2, target, source, num_bytes, cuda(stream));
}

void CudaDevice::write_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) {
  const Call call(*this, "write_word");
  SLIPSTREAM_CUDA(driver_, cuStreamWriteValue32_v2, cuda(stream), word, value,
                  kCudaStreamWriteValueDefault);
}

void CudaDevice::wait_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) {
  const Call call(*this, "wait_word");
  SLIPSTREAM_CUDA(driver_, cuStreamWaitValue32_v2, cuda(stream), word, value,
                  kCudaStreamWaitValueGeq);
}

void CudaDevice::record(StreamHandle stream, EventHandle event) {
  const Call call(*this, "record");
  SLIPSTREAM_CUDA(driver_, cuEventRecord, cuda(event), cuda(stream));
}

void CudaDevice::wait_event(StreamHandle stream, EventHandle event) {
  const Call call(*this, "wait_event");
  SLIPSTREAM_CUDA(driver_, cuStreamWaitEvent, cuda(stream), cuda(event), 0);
}

bool CudaDevice::is_done(EventHandle event) {
  const Call call(*this, "is_done");
  const CudaResult result = driver_.api().cuEventQuery(cuda(event));
  if (result == kCudaNotReady) return false;
  driver_.check(result, "cuEventQuery");
  return true;
}

void CudaDevice::synchronize(StreamHandle stream) {
  const Call call(*this, "synchronize");
  SLIPSTREAM_CUDA(driver_, cuStreamSynchronize, cuda(stream));
}

CudaDevice& kept_cuda_device(const std::string& library, int ordinal) {
  static std::mutex mutex;
  static auto& devices = *new std::map<std::pair<std::string, int>, std::unique_ptr<CudaDevice>>;
  const std::scoped_lock lock(mutex);
  std::unique_ptr<CudaDevice>& device = devices[{library, ordinal}];
  if (!device) device = std::make_unique<CudaDevice>(CudaDriver(library), ordinal);
  return *device;
}

}  // namespace slipstream
