#pragma once

#include "base/clock.h"
#include "device/device.h"

namespace slipstream {

/// Tries what staging needs of a device: it pins a page, and a stream waits for a word of it and
/// copies from it and back. Throws Error if a call fails, if the words come back wrong, or if the
/// stream has not ended after `limit`. In the last case its memory is never freed, because the
/// device may still use it.
void try_device(Device& device, Nanoseconds limit = 2s);

}  // namespace slipstream
