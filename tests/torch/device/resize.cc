#include "resize.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <utility>

#include "allocator.h"

namespace slipstream::teststream {

void resize(c10::StorageImpl& storage, std::size_t num_bytes) {
  c10::DataPtr memory = allocator().allocate(num_bytes);
  const std::size_t kept = std::min(num_bytes, storage.nbytes());
  if (kept > 0) allocator().copy_data(memory.mutable_get(), storage.data(), kept);
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_nbytes(num_bytes);
}

void resize(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto offset = static_cast<std::size_t>(impl.storage_offset());
  const std::size_t num_bytes =
      at::detail::computeStorageNbytes(sizes, strides, impl.itemsize(), offset);
  c10::StorageImpl& storage = *impl.unsafe_storage().unsafeGetStorageImpl();
  if (num_bytes > storage.nbytes()) resize(storage, num_bytes);
  impl.set_sizes_and_strides(sizes, strides);
}

}  // namespace slipstream::teststream
