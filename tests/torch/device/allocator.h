#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace slipstream::teststream {

/// The allocator of device memory, with the rules of PyTorch's caching allocator for CUDA: memory
/// belongs to the stream that was current when it was allocated, and only this stream gets it
/// again. It is overwritten then, in the order of this stream, so another stream that still uses it
/// computes wrong results unless record_stream() named that stream.
c10::Allocator& allocator();

/// Notes that another stream uses memory: it is not used again before that stream has executed all
/// commands that it has when the memory is freed.
void record_stream(const c10::DataPtr& memory, c10::Stream stream);

}  // namespace slipstream::teststream
