#pragma once

#include <cstddef>
#include <vector>

#include "device/staging.h"
#include "slipstream/request.h"

namespace slipstream {

/// The rows of a collective's memory in a slot, and those at which its input and output begin.
struct StagedLayout {
  std::vector<StagedRow> rows{};
  std::size_t input_row = 0, output_row = 0;
};

/// The layout for a request with device memory on rank `rank` of `size`. All ranks have equally
/// many rows of equal lengths, so they cut their tensors into the same chunks. Throws
/// Error(kUsage) if the collective cannot be staged.
StagedLayout staged_layout(const Request& request, std::uint32_t rank, std::uint32_t size);

/// The request for one chunk of a transfer, whose slot is `slot`.
Request request_of_chunk(const Request& request, const StagedLayout& layout,
                         const Transfer& transfer, std::uint64_t index, std::byte* slot);

}  // namespace slipstream
