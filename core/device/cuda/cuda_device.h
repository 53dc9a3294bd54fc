#pragma once

#include <string>

#include "base/fork.h"
#include "device/cuda/cuda_driver.h"
#include "device/device.h"

namespace slipstream {

/// A GPU, used through its primary context, which PyTorch uses too. Thread-safe.
class CudaDevice final : public Device {
 public:
  /// `ordinal` counts the GPUs that CUDA_VISIBLE_DEVICES leaves. Throws Error(kUnsupported) if
  /// streams of this GPU cannot wait for words of host memory.
  explicit CudaDevice(const CudaDriver& driver, int ordinal = 0);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  [[nodiscard]] std::string describe() const override;
  DeviceAddress allocate(std::size_t num_bytes) override;
  void free(DeviceAddress memory) override;
  DeviceAddress register_host(std::span<std::byte> memory) override;
  void unregister_host(std::byte* memory) override;
  StreamHandle make_stream() override;
  void destroy(StreamHandle stream) override;
  EventHandle make_event() override;
  void destroy(EventHandle event) override;
  void copy_to_host(StreamHandle stream, std::byte* target, DeviceAddress source,
                    std::size_t num_bytes) override;
  void copy_to_device(StreamHandle stream, DeviceAddress target, const std::byte* source,
                      std::size_t num_bytes) override;
  void write_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) override;
  void wait_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) override;
  void record(StreamHandle stream, EventHandle event) override;
  void wait_event(StreamHandle stream, EventHandle event) override;
  [[nodiscard]] bool is_done(EventHandle event) override;
  void synchronize(StreamHandle stream) override;

 private:
  class Call;

  [[nodiscard]] int attribute(int number) const;
  void require(int attribute, const char* what) const;

  CudaDriver driver_;
  Origin origin_;
  int ordinal_;
  CudaDeviceNumber device_ = 0;
  CudaHandle context_ = nullptr;
};

/// The device of a GPU, which is made by the first call and kept until the process ends, because
/// the driver may be shut down before static objects are destroyed.
CudaDevice& kept_cuda_device(const std::string& library, int ordinal);

}  // namespace slipstream
