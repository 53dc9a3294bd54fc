#include "collective/shape.h"

namespace slipstream {

Blocks Blocks::even(Memory memory, const Shape& shape) {
  std::vector<std::uint64_t> counts(shape.size, shape.count / shape.size);
  for (std::uint64_t i = 0; i < shape.count % shape.size; ++i) ++counts[i];
  return listed(memory, counts, shape.element_bytes);
}

Blocks Blocks::uniform(Memory memory, const Shape& shape) {
  return listed(memory, std::vector<std::uint64_t>(shape.size, shape.count), shape.element_bytes);
}

Blocks Blocks::listed(Memory memory, const std::vector<std::uint64_t>& counts,
                      std::uint64_t element_bytes) {
  Blocks blocks;
  blocks.memory_ = memory;
  for (const std::uint64_t count : counts) {
    blocks.begin_.push_back(blocks.begin_.back() + count * element_bytes);
  }
  return blocks;
}

Blocks Blocks::in(Memory memory, std::uint64_t offset) const {
  Blocks moved = *this;
  moved.memory_ = memory;
  for (std::uint64_t& begin : moved.begin_) begin += offset;
  return moved;
}

}  // namespace slipstream
