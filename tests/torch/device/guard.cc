// What PyTorch asks of a device: its streams and events, and the hooks of a backend.

#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <thread>

#include "allocator.h"
#include "device.h"
#include "pinned.h"
#include "resize.h"
#include "slipstream/error.h"

namespace slipstream::teststream {
namespace {

EventHandle event_of(void* event) { return EventHandle{reinterpret_cast<std::uintptr_t>(event)}; }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return current_stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return next_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return next_stream(); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(handle_of(stream));
  }
  bool queryStream(const c10::Stream& stream) const override {
    void* event = nullptr;
    record(&event, stream, 0, c10::EventFlag::PYTORCH_DEFAULT);
    const bool done = queryEvent(event);
    destroyEvent(event, 0);
    return done;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    device().synchronize(handle_of(stream));
  }
  void synchronizeDevice(c10::DeviceIndex) const override { device().synchronize_all(); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = reinterpret_cast<void*>(device().make_event());
    device().record(handle_of(stream), event_of(*event));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) device().wait_event(handle_of(stream), event_of(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || device().is_done(event_of(event));
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::sleep_for(50us);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    try {
      if (event != nullptr) device().destroy(event_of(event));
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a failed device has no events
    }
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    record_stream(memory, stream);
  }
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* memory) const override { return is_pinned(memory); }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
  // Random numbers come from the CPU's generator, because operators run on the CPU.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::globalContext().defaultGenerator(at::kCPU);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t num_bytes) const override;
};

}  // namespace

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t num_bytes) const {
  resize(*storage.unsafeGetStorageImpl(), num_bytes);
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

namespace {

const bool registered = [] {
  c10::SetAllocator(kType, &allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace slipstream::teststream
