#pragma once

#include <cstdint>
#include <vector>

#include "collective/plan.h"
#include "slipstream/codec.h"
#include "slipstream/collective.h"
#include "topology/layout.h"

namespace slipstream {

/// All properties on which a plan depends.
struct Shape {
  Collective collective{};
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t root = 0;  ///< root, or peer of a send or receive
  std::uint64_t element_bytes = 1;
  /// Number of elements of the whole buffer for allreduce, broadcast, reduce, send and receive, and
  /// of one rank's block for the others, unless the lists below give a number for each rank.
  std::uint64_t count = 0;
  std::vector<std::uint64_t> send_counts;     ///< all_to_all_v
  std::vector<std::uint64_t> receive_counts;  ///< all_to_all_v, all_gather_v

  Codec codec = Codec::kNone;      ///< the codec that is in effect
  const Layout* layout = nullptr;  ///< layout of the group; it outlives the shape

  bool operator==(const Shape&) const = default;
  [[nodiscard]] std::uint64_t bytes() const { return count * element_bytes; }
  [[nodiscard]] std::uint32_t next(std::uint32_t by = 1) const { return (rank + by) % size; }
  [[nodiscard]] std::uint32_t previous(std::uint32_t by = 1) const {
    return (rank + size - by % size) % size;
  }
};

/// A buffer that is divided into one block per rank.
class Blocks {
 public:
  /// `count` elements, divided as evenly as possible: the first blocks are one element longer.
  static Blocks even(Memory memory, const Shape& shape);
  /// A block of `shape.count` elements for each rank.
  static Blocks uniform(Memory memory, const Shape& shape);
  /// Blocks with these numbers of elements.
  static Blocks listed(Memory memory, const std::vector<std::uint64_t>& counts,
                       std::uint64_t element_bytes);

  [[nodiscard]] Region operator[](std::uint32_t rank) const {
    return {memory_, begin_[rank], begin_[rank + 1] - begin_[rank]};
  }
  [[nodiscard]] std::uint64_t bytes() const { return begin_.back() - begin_.front(); }
  /// The same blocks in another buffer, beginning at `offset` bytes.
  [[nodiscard]] Blocks in(Memory memory, std::uint64_t offset = 0) const;

 private:
  Memory memory_{};
  std::vector<std::uint64_t> begin_{0};
};

}  // namespace slipstream
