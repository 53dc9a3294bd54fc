#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "slipstream/negotiation.h"

namespace slipstream {

/// What ranks must agree on for one tensor, and in whose company it was submitted.
struct Metadata {
  std::shared_ptr<const TensorSpec> tensor;
  std::uint32_t fused_size = 1;
  std::uint64_t fused_hash = 0;  ///< of the names in their order; 0 for one alone

  [[nodiscard]] const std::string& name() const { return tensor->name; }
  bool operator==(const Metadata& other) const {
    return fused_hash == other.fused_hash && fused_size == other.fused_size &&
           (tensor == other.tensor || *tensor == *other.tensor);
  }
};

/// "allreduce sum float32[3, 4] as fp16, fused with 2 others", for messages.
std::string describe(const Metadata& metadata);

/// Appends the bytes by which another rank read()s the metadata.
void write(std::string& out, const Metadata& metadata);
/// Takes metadata off the front of `bytes`. Throws Error(kInternal) where they are none.
Metadata read(std::string_view& bytes);

}  // namespace slipstream
