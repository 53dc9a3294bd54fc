#include "staged/staged_layout.h"

#include <algorithm>
#include <cstdint>

#include "slipstream/dtype.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

/// The memory of a request on one rank.
struct Memory {
  DeviceAddress input, output;
  std::size_t num_bytes;  ///< of the tensor, or of a rank's block
  std::uint32_t rank, size;

  [[nodiscard]] DeviceAddress input_block(std::uint32_t index) const {
    return input == 0 ? 0 : input + index * num_bytes;
  }
  [[nodiscard]] DeviceAddress output_block(std::uint32_t index) const {
    return output == 0 ? 0 : output + index * num_bytes;
  }
};

/// The blocks of all ranks, of which this rank gives its own.
StagedLayout gathered(const Memory& memory, bool receives) {
  StagedLayout layout{.input_row = memory.rank};
  for (std::uint32_t i = 0; i < memory.size; ++i) {
    layout.rows.push_back({memory.num_bytes, i == memory.rank ? memory.input : 0,
                           receives ? memory.output_block(i) : 0});
  }
  return layout;
}

StagedLayout gathered(const Memory& memory, const std::vector<std::uint64_t>& counts,
                      std::size_t element_bytes) {
  StagedLayout layout{.input_row = memory.rank};
  DeviceAddress output = memory.output;
  for (std::uint32_t i = 0; i < memory.size; ++i) {
    const std::size_t num_bytes = counts.at(i) * element_bytes;
    layout.rows.push_back({num_bytes, i == memory.rank ? memory.input : 0, output});
    output += num_bytes;
  }
  return layout;
}

/// The blocks of all ranks, of which this rank gets its own.
StagedLayout scattered(const Memory& memory, bool sends) {
  StagedLayout layout{.output_row = memory.rank};
  for (std::uint32_t i = 0; i < memory.size; ++i) {
    layout.rows.push_back({memory.num_bytes, sends ? memory.input_block(i) : 0,
                           i == memory.rank ? memory.output : 0});
  }
  return layout;
}

/// The blocks for all ranks, followed by the blocks of all ranks.
StagedLayout exchanged(const Memory& memory) {
  StagedLayout layout{.output_row = memory.size};
  for (std::uint32_t i = 0; i < memory.size; ++i) {
    layout.rows.push_back({memory.num_bytes, memory.input_block(i), 0});
  }
  for (std::uint32_t i = 0; i < memory.size; ++i) {
    layout.rows.push_back({memory.num_bytes, 0, memory.output_block(i)});
  }
  return layout;
}

[[noreturn]] void refuse(const Request& request, const char* remedy) {
  fail(ErrorKind::kUsage, title_of(request), " cannot be staged for a device; ", remedy);
}

}  // namespace

StagedLayout staged_layout(const Request& request, std::uint32_t rank, std::uint32_t size) {
  const std::size_t element_bytes = size_of(request.dtype);
  const Memory memory{reinterpret_cast<DeviceAddress>(request.input),
                      reinterpret_cast<DeviceAddress>(request.output),
                      request.count * element_bytes, rank, size};
  const bool is_root = request.root == rank;
  const auto whole = [&](DeviceAddress source, DeviceAddress target) {
    return StagedLayout{.rows = {{memory.num_bytes, source, target}}};
  };
  switch (request.collective) {
    case Collective::kAllreduce:
      return whole(memory.input, memory.output);
    case Collective::kBroadcast:
      return whole(is_root ? memory.input : 0, is_root ? 0 : memory.output);
    case Collective::kReduce:
      return whole(memory.input, is_root ? memory.output : 0);
    case Collective::kAllGather:
      if (request.receive_counts.empty()) return gathered(memory, true);
      return gathered(memory, request.receive_counts, element_bytes);
    case Collective::kGather:
      return gathered(memory, is_root);
    case Collective::kReduceScatter:
      return scattered(memory, true);
    case Collective::kScatter:
      return scattered(memory, is_root);
    case Collective::kAllToAll:
      if (!request.send_counts.empty()) refuse(request, "send and receive each block");
      return exchanged(memory);
    case Collective::kSend:
      return whole(memory.input, 0);
    case Collective::kReceive:
      if (request.root == kAnyPeer) refuse(request, "name the rank that sends");
      return whole(0, memory.output);
    case Collective::kBarrier:
      break;
  }
  refuse(request, "call it without a device");
}

Request request_of_chunk(const Request& request, const StagedLayout& layout,
                         const Transfer& transfer, std::uint64_t index, std::byte* slot) {
  const std::size_t element_bytes = size_of(request.dtype);
  Request part = request;
  part.input = slot + transfer.offset_of(layout.input_row, index);
  part.output = slot + transfer.offset_of(layout.output_row, index);
  part.count = transfer.width_of(0, index) / element_bytes;
  if (!request.receive_counts.empty()) {
    part.count = 0;
    for (std::uint32_t i = 0; i < part.receive_counts.size(); ++i) {
      part.receive_counts[i] = transfer.width_of(i, index) / element_bytes;
    }
  }
  if (request.residual != nullptr) {
    const std::size_t first_element = index * transfer.width / sizeof(float);
    part.residual = request.residual + first_element;
  }
  for (const StagedRow& row : layout.rows) {
    part.whole_bytes = std::max<std::uint64_t>(part.whole_bytes, row.num_bytes);
  }
  part.waits_soon = false;
  return part;
}

}  // namespace slipstream
