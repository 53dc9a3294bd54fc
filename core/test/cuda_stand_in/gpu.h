#pragma once

#include "device/fake/fake_device.h"

namespace slipstream {

/// The device of the stand-in for the CUDA driver. The library that contains the stand-in defines
/// it, so that other code in the library can use the same device.
FakeDevice& stand_in_gpu();

}  // namespace slipstream
