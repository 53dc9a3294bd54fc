#pragma once

#include <string>

#include "device/cuda/cuda_api.h"

namespace slipstream {

/// The CUDA driver, opened at run time. Copies use the same library, which stays open until the
/// process ends because the driver has threads of its own.
class CudaDriver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  /// Throws Error(kUnsupported) if there is no driver, if it is too old, or if it finds no GPU.
  explicit CudaDriver(const std::string& library = kLibrary);

  [[nodiscard]] const CudaApi& api() const noexcept { return api_; }
  /// The CUDA version that the driver supports: 12040 is 12.4.
  [[nodiscard]] int cuda_version() const;
  [[nodiscard]] int num_devices() const;
  [[nodiscard]] std::string name_of(CudaDeviceNumber device) const;
  [[nodiscard]] std::size_t memory_bytes_of(CudaDeviceNumber device) const;
  /// Throws Error unless the result is success. The message names the function, the result and a
  /// remedy.
  void check(CudaResult result, const char* function) const;

 private:
  [[nodiscard]] std::string describe(CudaResult result) const;

  CudaApi api_;
};

/// Calls a function of the driver, and throws unless it succeeds:
///   SLIPSTREAM_CUDA(driver, cuMemFree_v2, address);
#define SLIPSTREAM_CUDA(driver, function, ...) \
  (driver).check((driver).api().function(__VA_ARGS__), #function)

}  // namespace slipstream
