#include "test/cuda_stand_in/gpu.h"

namespace slipstream {

FakeDevice& stand_in_gpu() {
  static FakeDevice device({.memory_bytes = 2UL << 30});  // of which pages come when touched
  return device;
}

}  // namespace slipstream
