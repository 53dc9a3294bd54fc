#include <vector>

#include "collective/algorithms.h"
#include "topology/layout.h"

namespace slipstream::dimensions {
namespace {

constexpr auto kNone = PlanBuilder::kNone;

/// An allreduce over a grid of ranks (Cho et al., PowerAI DDL, 2017): a ring reduce-scatter over each
/// dimension, the innermost first, then a ring all-gather over each, the outermost first. The buffer
/// is cut into one block for each rank from the start, and the rings of a dimension run for each
/// block on its own, so that its segments go on to the next dimension while others are in this one.
class Builder {
 public:
  explicit Builder(const Shape& shape)
      : dimensions_(shape.layout->dimensions),
        plan_(Algorithm::kDimensions),
        output_(Blocks::even(Memory::kOutput, shape)),
        ready_(shape.size, kNone) {
    const Blocks input = output_.in(Memory::kInput);
    for (std::uint32_t block = 0; block < shape.size; ++block) value_.push_back(input[block]);
    std::uint32_t weight = shape.size, first = 0, tag = 0;
    for (const Dimension& dimension : dimensions_) {
      weight /= dimension.size();
      levels_.push_back({first, weight, tag});
      first += dimension.index * weight;
      tag += weight * (dimension.size() - 1);
    }
    gather_tag_ = tag;
  }

  Plan build() && {
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      for (const std::uint32_t rest : least_urgent_first(level)) reduce_scatter(level, rest);
    }
    for (std::size_t level = levels_.size(); level-- > 0;) {
      for (std::uint32_t rest = 0; rest < levels_[level].weight; ++rest) all_gather(level, rest);
    }
    return std::move(plan_).build();
  }

 private:
  /// In a dimension the coordinate c has the blocks from first + c * weight on, `weight` of them:
  /// those of all ranks that share the coordinates up to this one.
  struct Level {
    std::uint32_t first = 0, weight = 1, tag = 0;
  };

  [[nodiscard]] std::uint32_t block(std::size_t level, std::uint32_t at, std::uint32_t rest) const {
    return levels_[level].first + at * levels_[level].weight + rest;
  }
  [[nodiscard]] std::uint32_t tag(std::size_t level, std::uint32_t rest, std::uint32_t step) const {
    return levels_[level].tag + rest * (dimensions_[level].size() - 1) + step;
  }

  /// Later steps are sent first, and the next dimension begins with its coordinate before ours.
  [[nodiscard]] std::vector<std::uint32_t> least_urgent_first(std::size_t level) const {
    if (level + 1 == levels_.size()) return {0};
    std::vector<std::uint32_t> order;
    const Dimension& next = dimensions_[level + 1];
    for (std::uint32_t by = next.size(); by > 0; --by) {
      for (std::uint32_t i = 0; i < levels_[level + 1].weight; ++i) {
        order.push_back(next.before(by) * levels_[level + 1].weight + i);
      }
    }
    return order;
  }

  void reduce_scatter(std::size_t level, std::uint32_t rest) {
    const Dimension& ring = dimensions_[level];
    for (std::uint32_t s = 0; s + 1 < ring.size(); ++s) {
      const std::uint32_t outgoing = block(level, ring.before(1 + s), rest);
      const std::uint32_t incoming = block(level, ring.before(2 + s), rest);
      const bool complete = level + 1 == levels_.size() && s + 2 == ring.size();
      plan_.send(ring.members[ring.after(1)], tag(level, rest, s), value_[outgoing],
                 {ready_[outgoing]});
      add(incoming, ring.members[ring.before(1)], tag(level, rest, s), complete);
    }
  }

  /// Receives another rank's sum of a block and adds this rank's. A value that is itself a result
  /// may not be there yet: what arrives waits for it in memory of its own.
  void add(std::uint32_t block, std::uint32_t peer, std::uint32_t tag, bool complete) {
    if (value_[block].memory == Memory::kInput) {
      ready_[block] = plan_.receive_reduce(peer, tag, output_[block], value_[block], complete);
    } else {
      const Region arrived = plan_.scratch(value_[block].bytes);
      const std::uint32_t received = plan_.receive(peer, tag, arrived);
      ready_[block] = plan_.reduce(output_[block], arrived, value_[block],
                                   {received, ready_[block]}, complete);
    }
    value_[block] = output_[block];
  }

  void all_gather(std::size_t level, std::uint32_t rest) {
    const Dimension& ring = dimensions_[level];
    for (std::uint32_t s = 0; s + 1 < ring.size(); ++s) {
      const std::uint32_t outgoing = block(level, ring.before(s), rest);
      const std::uint32_t incoming = block(level, ring.before(1 + s), rest);
      const std::uint32_t number = gather_tag_ + tag(level, rest, s);
      plan_.send(ring.members[ring.after(1)], number, output_[outgoing], {ready_[outgoing]});
      ready_[incoming] =
          plan_.receive(ring.members[ring.before(1)], number, output_[incoming]);
    }
  }

  const std::vector<Dimension>& dimensions_;
  PlanBuilder plan_;
  const Blocks output_;
  std::vector<Region> value_;          // by block: where this rank's sum stands
  std::vector<std::uint32_t> ready_;  // by block: the step that completes it
  std::vector<Level> levels_;
  std::uint32_t gather_tag_ = 0;
};

}  // namespace

Plan allreduce(const Shape& shape) { return Builder(shape).build(); }

}  // namespace slipstream::dimensions
