#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace slipstream::teststream {

/// Memory of a tensor of the test device as a CPU tensor, for kernels. It does not keep the memory
/// from being used again, as a kernel of a GPU does not.
at::Tensor kernel_view(const at::Tensor& tensor);

/// New memory of the test device.
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype);

/// Runs any operator. Its kernel on the CPU runs twice: now, on zeros, for the sizes of the
/// results, and later on the values, in the current stream. An operator whose results the caller
/// reads (such as item) waits for the stream, and views are made at once.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace slipstream::teststream
