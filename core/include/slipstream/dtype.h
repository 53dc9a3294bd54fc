#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slipstream {

/// Element types that the engine can move and reduce.
enum class DType : std::uint8_t {
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kBool,  ///< one byte; every value except zero is true
};
inline constexpr std::size_t kNumDTypes = 15;

/// The operation that combines the values of the ranks, element by element.
enum class ReduceOp : std::uint8_t {
  kSum,
  kAverage,  ///< a sum that is divided by the number of ranks in the last step
  kMin,
  kMax,
  kProduct,
  kBand,
  kBor,
  kBxor,
};
inline constexpr std::size_t kNumReduceOps = 8;

/// The property of a dtype on which is_supported() depends.
enum class DTypeKind : std::uint8_t { kInteger, kFloating, kComplex, kBool };

struct DTypeTraits {
  std::string_view name;
  std::size_t size_bytes;
  DTypeKind kind;
};

inline constexpr std::array<DTypeTraits, kNumDTypes> kDTypeTraits{{
    {"int8", 1, DTypeKind::kInteger},
    {"uint8", 1, DTypeKind::kInteger},
    {"int16", 2, DTypeKind::kInteger},
    {"uint16", 2, DTypeKind::kInteger},
    {"int32", 4, DTypeKind::kInteger},
    {"uint32", 4, DTypeKind::kInteger},
    {"int64", 8, DTypeKind::kInteger},
    {"uint64", 8, DTypeKind::kInteger},
    {"float16", 2, DTypeKind::kFloating},
    {"bfloat16", 2, DTypeKind::kFloating},
    {"float32", 4, DTypeKind::kFloating},
    {"float64", 8, DTypeKind::kFloating},
    {"complex64", 8, DTypeKind::kComplex},
    {"complex128", 16, DTypeKind::kComplex},
    {"bool", 1, DTypeKind::kBool},
}};

inline constexpr std::array<std::string_view, kNumReduceOps> kReduceOpNames{
    "sum", "average", "min", "max", "product", "band", "bor", "bxor"};

/// Size of one element in bytes.
constexpr std::size_t size_of(DType dtype) {
  return kDTypeTraits[static_cast<std::size_t>(dtype)].size_bytes;
}

/// The name in NumPy and PyTorch, such as "float32", "bfloat16" or "bool".
constexpr std::string_view name_of(DType dtype) {
  return kDTypeTraits[static_cast<std::size_t>(dtype)].name;
}

/// The name in the Python API, such as "sum" or "average".
constexpr std::string_view name_of(ReduceOp op) {
  return kReduceOpNames[static_cast<std::size_t>(op)];
}

/// Whether the operation exists for the dtype: complex numbers have no order, only integers and
/// bool have bits, and a bool has no average.
constexpr bool is_supported(ReduceOp op, DType dtype) {
  const DTypeKind kind = kDTypeTraits[static_cast<std::size_t>(dtype)].kind;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return true;
    case ReduceOp::kAverage:
      return kind != DTypeKind::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return kind != DTypeKind::kComplex;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return kind == DTypeKind::kInteger || kind == DTypeKind::kBool;
  }
  return false;
}

}  // namespace slipstream
