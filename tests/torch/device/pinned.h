#pragma once

#include <c10/core/Allocator.h>

namespace slipstream::teststream {

/// The allocator of host memory that counts as pinned: the device reads it when a copy runs, not
/// when it is called.
c10::Allocator& pinned_allocator();
bool is_pinned(const void* memory);

}  // namespace slipstream::teststream
