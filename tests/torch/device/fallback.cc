#include "fallback.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator.h"
#include "device.h"
#include "resize.h"

namespace slipstream::teststream {
namespace {

using Stack = torch::jit::Stack;

bool is_ours(const at::Tensor& tensor) { return tensor.defined() && tensor.device() == kDevice; }

/// A value with each tensor replaced. A device becomes the CPU.
template <typename Map>
c10::IValue map_tensors(const c10::IValue& value, const Map& map) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::kCPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& each : value.toTensorVector()) mapped.push_back(map(each));
    return mapped;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
      mapped.push_back(each ? std::optional(map(*each)) : std::nullopt);
    }
    return mapped;
  }
  return value;
}

template <typename Map>
Stack map_tensors(const Stack& values, const Map& map) {
  Stack mapped;
  for (const c10::IValue& each : values) mapped.push_back(map_tensors(each, map));
  return mapped;
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  map_tensors(value, [&](const at::Tensor& each) {
    tensors.push_back(each);
    return each;
  });
  return tensors;
}

at::Tensor zeros_like_on_cpu(const at::Tensor& tensor) {
  if (!is_ours(tensor)) return tensor;
  at::Tensor zeros = at::empty_strided(tensor.sizes(), tensor.strides(),
                                       at::TensorOptions(tensor.scalar_type()).device(at::kCPU));
  std::memset(zeros.mutable_data_ptr(), 0, zeros.storage().nbytes());
  return zeros;
}

/// What the kernel reads: device memory later, and host memory as it is now.
at::Tensor frozen(const at::Tensor& tensor) {
  if (is_ours(tensor)) return kernel_view(tensor);
  if (!tensor.defined()) return tensor;
  at::Tensor copy = tensor.detach().clone();
  copy.unsafeGetTensorImpl()->set_wrapped_number(tensor.unsafeGetTensorImpl()->is_wrapped_number());
  return copy;
}

Stack call(const c10::OperatorHandle& op, Stack stack) {
  const at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(&stack);
  return stack;
}

/// A call of an operator on tensors of the test device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op),
        schema_(op.schema()),
        arguments_(torch::jit::pop(*stack, schema_.arguments().size())) {}

  Stack run() {
    if (makes_view()) return {make_view()};
    if (op_.hasTag(at::Tag::dynamic_output_shape)) return run_now();
    const Stack zeros = map_tensors(arguments_, zeros_like_on_cpu);
    const Stack shapes = call(op_, zeros);
    adopt_sizes(zeros);
    if (!std::ranges::all_of(shapes, is_tensors)) return run_now();
    return launch(shapes);
  }

 private:
  static bool is_tensors(const c10::IValue& value) {
    return value.isTensor() || value.isTensorList();
  }

  /// Writes of operators that resize their output: the output gets its size now.
  void adopt_sizes(const Stack& zeros) {
    for (std::size_t i = 0; i < zeros.size(); ++i) {
      if (!zeros[i].isTensor() || !is_ours(arguments_[i].toTensor())) continue;
      const at::Tensor& shaped = zeros[i].toTensor();
      const at::Tensor& tensor = arguments_[i].toTensor();
      if (tensor.sizes() != shaped.sizes() || tensor.strides() != shaped.strides()) {
        resize(tensor, shaped.sizes(), shaped.strides());
      }
    }
  }

  /// Enqueues the kernel, and returns results in new memory or those that it writes.
  Stack launch(const Stack& shapes) {
    Stack results;
    std::vector<std::pair<std::size_t, c10::IValue>> copies;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (const c10::IValue* written = written_argument(schema_.returns()[i])) {
        results.push_back(*written);
        continue;
      }
      results.push_back(map_tensors(shapes[i], [](const at::Tensor& shape) {
        return shape.defined() ? empty_strided(shape.sizes(), shape.strides(), shape.scalar_type())
                               : shape;
      }));
      copies.emplace_back(i, map_tensors(results.back(), frozen));
    }
    device().launch(handle_of(current_stream()), [op = op_, copies = std::move(copies),
                                                  stack = map_tensors(arguments_, frozen)] {
      const Stack computed = call(op, stack);
      for (const auto& [index, target] : copies) copy_all(computed[index], target);
    });
    return results;
  }

  static void copy_all(const c10::IValue& source, const c10::IValue& target) {
    const std::vector<at::Tensor> from = tensors_of(source), to = tensors_of(target);
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (!to[i].defined()) continue;
      TORCH_CHECK(from[i].sizes() == to[i].sizes(),
                  "the size of a result depends on values: ", from[i].sizes(), " instead of ",
                  to[i].sizes());
      to[i].copy_(from[i]);
    }
  }

  /// Waits for the stream and computes, because the caller reads the result.
  Stack run_now() {
    device().synchronize(handle_of(current_stream()));
    Stack results = call(op_, map_tensors(arguments_, kernel_or_host));
    return map_tensors(
        results, [](const at::Tensor& each) { return each.defined() ? each.to(kDevice) : each; });
  }

  static at::Tensor kernel_or_host(const at::Tensor& tensor) {
    return is_ours(tensor) ? kernel_view(tensor) : tensor;
  }

  const c10::IValue* written_argument(const c10::Argument& result) const {
    if (result.alias_info() == nullptr) return nullptr;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const auto* alias = schema_.arguments()[i].alias_info();
      if (alias != nullptr && alias->beforeSets() == result.alias_info()->beforeSets()) {
        return &arguments_[i];
      }
    }
    return nullptr;
  }

  bool makes_view() const {
    const auto& returns = schema_.returns();
    return returns.size() == 1 && returns[0].alias_info() != nullptr &&
           !returns[0].alias_info()->isWrite();
  }

  /// Computes sizes, strides and offset of a view, or of several, on tensors without memory.
  c10::IValue make_view() const {
    const at::Tensor base = written_argument(schema_.returns()[0])->toTensor();
    const auto without_memory = [](const at::Tensor& tensor) {
      const auto length = static_cast<std::int64_t>(tensor.storage().nbytes() / tensor.itemsize());
      const auto options = at::TensorOptions(tensor.scalar_type()).device(at::kMeta);
      return at::empty({length}, options)
          .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    };
    const Stack views = call(op_, map_tensors(arguments_, without_memory));
    return map_tensors(views[0], [&](const at::Tensor& view) { return alias(base, view); });
  }

  static at::Tensor alias(const at::Tensor& base, const at::Tensor& shape) {
    at::Tensor view = at::detail::make_tensor<at::TensorImpl>(
        at::TensorImpl::VIEW, at::Storage(base.storage()), base.key_set(), shape.dtype());
    view.unsafeGetTensorImpl()->set_storage_offset(shape.storage_offset());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes(), shape.strides());
    return view;
  }

  const c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  const Stack arguments_;
};

}  // namespace

at::Tensor kernel_view(const at::Tensor& tensor) {
  const auto options = at::TensorOptions(tensor.scalar_type()).device(at::kCPU);
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  const std::size_t num_bytes =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
  return at::from_blob(kernel_bytes(tensor.const_data_ptr(), num_bytes), tensor.sizes(),
                       tensor.strides(), options);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype) {
  return at::detail::empty_strided_generic(
      sizes, strides, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
}

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  Call called(op, stack);
  for (c10::IValue& result : called.run()) stack->push_back(std::move(result));
}

}  // namespace slipstream::teststream
