#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace slipstream::teststream {

/// Gives a storage other memory, with the bytes of the former memory.
void resize(c10::StorageImpl& storage, std::size_t num_bytes);

/// Gives a tensor other sizes, and more memory if they need it.
void resize(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);

}  // namespace slipstream::teststream
