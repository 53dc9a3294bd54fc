#include "reduce/reduce.h"

#include <cstring>
#include <type_traits>

#include "reduce/reduce_kernels.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

DTypeKind kind_of(DType dtype) { return kDTypeTraits[static_cast<std::size_t>(dtype)].kind; }

template <typename T>
T quotient(T value, std::uint32_t divisor) {
  if constexpr (sizeof(T) < 8) {
    // This is exact, because 53 bits represent both operands, and several times faster than integer
    // division.
    return static_cast<T>(static_cast<double>(value) / divisor);
  } else if constexpr (std::is_signed_v<T>) {
    return value / static_cast<std::int64_t>(divisor);
  } else {
    return value / divisor;
  }
}

template <typename T>
void divide_integers(void* data, std::size_t count, std::uint32_t divisor) {
  auto* bytes = static_cast<std::uint8_t*>(data);
  for (std::size_t i = 0; i < count; ++i, bytes += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    value = quotient(value, divisor);
    std::memcpy(bytes, &value, sizeof(T));
  }
}

}  // namespace

void reduce(DType dtype, ReduceOp op, void* dst, const void* lower, const void* upper,
            std::size_t count) {
  SLIPSTREAM_ASSERT(is_supported(op, dtype), name_of(op), " of ", name_of(dtype));
  const Operands operands{static_cast<std::uint8_t*>(dst), static_cast<const std::uint8_t*>(lower),
                          static_cast<const std::uint8_t*>(upper), count * size_of(dtype)};
  const DTypeKind kind = kind_of(dtype);
  if (kind == DTypeKind::kInteger || kind == DTypeKind::kBool) {
    reduce_integers(dtype, op, operands);
  } else {
    reduce_floats(dtype, op, operands);
  }
}

void divide(DType dtype, void* data, std::size_t count, std::uint32_t divisor) {
  SLIPSTREAM_ASSERT(is_supported(ReduceOp::kAverage, dtype) && divisor > 0, name_of(dtype),
                    " divided by ", divisor);
  auto* bytes = static_cast<std::uint8_t*>(data);
  switch (dtype) {
    case DType::kInt8:
      return divide_integers<std::int8_t>(data, count, divisor);
    case DType::kUInt8:
      return divide_integers<std::uint8_t>(data, count, divisor);
    case DType::kInt16:
      return divide_integers<std::int16_t>(data, count, divisor);
    case DType::kUInt16:
      return divide_integers<std::uint16_t>(data, count, divisor);
    case DType::kInt32:
      return divide_integers<std::int32_t>(data, count, divisor);
    case DType::kUInt32:
      return divide_integers<std::uint32_t>(data, count, divisor);
    case DType::kInt64:
      return divide_integers<std::int64_t>(data, count, divisor);
    case DType::kUInt64:
      return divide_integers<std::uint64_t>(data, count, divisor);
    default:
      return divide_floats(dtype, {bytes, bytes, bytes, count * size_of(dtype)}, divisor);
  }
}

std::string_view simd_target() { return kernel_target(); }

}  // namespace slipstream
