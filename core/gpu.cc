#include "slipstream/gpu.h"

#include "device/cuda/cuda_device.h"
#include "device/trial.h"

namespace slipstream {

GpuList list_gpus(const std::string& library) {
  const CudaDriver driver(library);
  GpuList list{driver.cuda_version(), {}};
  for (int ordinal = 0; ordinal < driver.num_devices(); ++ordinal) {
    CudaDeviceNumber device = 0;
    SLIPSTREAM_CUDA(driver, cuDeviceGet, &device, ordinal);
    list.gpus.push_back({driver.name_of(device), driver.memory_bytes_of(device)});
  }
  return list;
}

void try_gpu(int ordinal, const std::string& library) {
  try_device(kept_cuda_device(library, ordinal));
}

}  // namespace slipstream
