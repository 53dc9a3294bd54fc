// The operators of which PyTorch makes all others, and the fallback for those.

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <torch/library.h>

#include "allocator.h"
#include "device.h"
#include "fallback.h"
#include "pinned.h"

namespace slipstream::teststream {
namespace {

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   at::dtype_or_default(dtype), format);
}

at::Tensor empty_with_strides(at::IntArrayRef sizes, at::IntArrayRef strides,
                              std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                              std::optional<at::Device>, std::optional<bool>) {
  return empty_strided(sizes, strides, at::dtype_or_default(dtype));
}

/// Copies within the device, to it and from it. Host memory that is not pinned is read at once, as
/// with CUDA; the caller waits for copies to the host, unless they go to pinned memory and need not
/// block.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const bool to_host = target.is_cpu();
  const bool is_read_now = source.is_cpu() && !is_pinned(source.const_data_ptr());
  const at::Tensor from = is_read_now       ? source.detach().clone()
                          : source.is_cpu() ? source.detach()
                                            : kernel_view(source);
  const at::Tensor to = to_host ? target.detach() : kernel_view(target);
  const StreamHandle stream = handle_of(current_stream());
  device().launch(stream, [from, to] { to.copy_(from); });
  const bool may_return = !to_host || (non_blocking && is_pinned(target.const_data_ptr()));
  if (!may_return) device().synchronize(stream);
  return target;
}

void use_on_stream(at::Tensor& tensor, at::Stream stream) {
  record_stream(tensor.storage().data_ptr(), stream);
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, std::int64_t offset,
                        at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(std::move(storage));
  impl.set_storage_offset(offset);
  impl.set_sizes_and_strides(sizes, strides);
  return tensor;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_with_strides);
  m.impl("_copy_from", copy_from);
  m.impl("record_stream", use_on_stream);
  m.impl("set_.source_Storage_storage_offset", set_storage);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace
}  // namespace slipstream::teststream
