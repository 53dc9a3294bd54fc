#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "slipstream/negotiation.h"

namespace slipstream {

/// The properties of a tensor on which ranks must agree, including the tensors that it is fused
/// with.
struct Metadata {
  std::shared_ptr<const TensorSpec> tensor;
  std::uint32_t fused_size = 1;
  std::uint64_t fused_hash = 0;  ///< hash of the fused names in their order; 0 for a single tensor

  [[nodiscard]] const std::string& name() const { return tensor->name; }
  bool operator==(const Metadata& other) const {
    return fused_hash == other.fused_hash && fused_size == other.fused_size &&
           (tensor == other.tensor || *tensor == *other.tensor);
  }
};

/// "allreduce sum float32[3, 4] as fp16, fused with 2 others", for messages.
std::string describe(const Metadata& metadata);

/// Appends the metadata in the form that read() parses on another rank.
void write(std::string& out, const Metadata& metadata);
/// Parses metadata at the front of `bytes` and removes it. Throws Error(kInternal) if it is
/// invalid.
Metadata read(std::string_view& bytes);

}  // namespace slipstream
