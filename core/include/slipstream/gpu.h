#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slipstream {

/// A GPU, as the CUDA driver describes it.
struct Gpu {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  std::uint64_t memory_bytes = 0;
};

/// The CUDA driver of this host, and the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order.
struct GpuList {
  int cuda_version = 0;  ///< that the driver supports: 12040 is 12.4
  std::vector<Gpu> gpus;
};

/// Lists the GPUs without using them. `library` is the CUDA driver, as dlopen() finds it. Throws
/// Error(kUnsupported) if there is no driver or no GPU.
GpuList list_gpus(const std::string& library);

/// Uses a GPU as collectives do, with a few bytes: pinned host memory, waits for words of it, and
/// copies. Throws Error if it cannot serve them. Makes the GPU's primary context, which takes
/// memory of the GPU until the process ends.
void try_gpu(int ordinal, const std::string& library);

}  // namespace slipstream
