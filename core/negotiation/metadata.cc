#include "negotiation/metadata.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>

namespace slipstream {
namespace {

template <typename Number>
void put(std::string& out, Number value) {
  static_assert(std::is_integral_v<Number> || std::is_enum_v<Number>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

std::string_view take_bytes(std::string_view& bytes, std::uint64_t count) {
  if (bytes.size() < count) {
    fail(ErrorKind::kInternal, "the metadata of a tensor end after ", bytes.size(), " of ", count,
         " bytes; please report it");
  }
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

template <typename Number>
Number take(std::string_view& bytes) {
  std::array<char, sizeof(Number)> taken;
  std::ranges::copy(take_bytes(bytes, sizeof(Number)), taken.begin());
  return std::bit_cast<Number>(taken);
}

/// Reads an enumerator of a type that has `count` of them.
template <typename Enum>
Enum take_enum(std::string_view& bytes, std::size_t count) {
  const auto value = take<std::uint8_t>(bytes);
  if (value >= count) {
    fail(ErrorKind::kInternal, "the metadata of a tensor contain the value ", int{value},
         "; allowed: 0 to ", count - 1, "; please report it");
  }
  return static_cast<Enum>(value);
}

bool reduces(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

}  // namespace

std::string describe(const Metadata& metadata) {
  const TensorSpec& tensor = *metadata.tensor;
  std::string text(name_of(tensor.collective));
  if (reduces(tensor.collective)) text += concat(' ', name_of(tensor.op));
  text += concat(' ', name_of(tensor.dtype), '[');
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    text += i == 0 ? "" : ", ";
    text += tensor.shape[i] < 0 ? "any" : std::to_string(tensor.shape[i]);
  }
  text += ']';
  if (has_root(tensor.collective)) text += concat(" root ", tensor.root);
  if (tensor.codec != Codec::kNone) text += concat(" as ", name_of(tensor.codec));
  if (!tensor.note.empty()) text += concat(", ", tensor.note);
  if (metadata.fused_size > 1) {
    text += concat(", fused with ", metadata.fused_size - 1,
                   metadata.fused_size == 2 ? " other tensor" : " other tensors",
                   " (hash of their names: ", std::hex, metadata.fused_hash, ')');
  }
  return text;
}

void write(std::string& out, const Metadata& metadata) {
  const TensorSpec& tensor = *metadata.tensor;
  put_text(out, tensor.name);
  put(out, tensor.collective);
  put(out, tensor.dtype);
  put(out, tensor.op);
  put(out, tensor.codec);
  put(out, tensor.root);
  put(out, static_cast<std::uint32_t>(tensor.shape.size()));
  for (const std::int64_t size : tensor.shape) put(out, size);
  put_text(out, tensor.note);
  put(out, metadata.fused_size);
  put(out, metadata.fused_hash);
}

Metadata read(std::string_view& bytes) {
  TensorSpec tensor;
  tensor.name = take_bytes(bytes, take<std::uint32_t>(bytes));
  tensor.collective =
      take_enum<Collective>(bytes, static_cast<std::size_t>(Collective::kReceive) + 1);
  tensor.dtype = take_enum<DType>(bytes, kNumDTypes);
  tensor.op = take_enum<ReduceOp>(bytes, kNumReduceOps);
  tensor.codec = take_enum<Codec>(bytes, kNumCodecs);
  tensor.root = take<std::uint32_t>(bytes);
  for (auto left = take<std::uint32_t>(bytes); left > 0; --left) {
    tensor.shape.push_back(take<std::int64_t>(bytes));
  }
  tensor.note = take_bytes(bytes, take<std::uint32_t>(bytes));
  Metadata metadata;
  metadata.tensor = std::make_shared<const TensorSpec>(std::move(tensor));
  metadata.fused_size = take<std::uint32_t>(bytes);
  metadata.fused_hash = take<std::uint64_t>(bytes);
  return metadata;
}

}  // namespace slipstream
