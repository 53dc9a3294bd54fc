#include <utility>
#include <vector>

#include "collective/algorithms.h"
#include "topology/layout.h"

namespace slipstream {
namespace {

constexpr auto kNone = PlanBuilder::kNone;

/// An allreduce over a grid of ranks (Cho et al., PowerAI DDL, 2017): a ring reduce-scatter over
/// each dimension, the innermost first, then a ring all-gather over each, the outermost first. The
/// buffer is divided into one block per rank from the start. The rings of a dimension run
/// separately for each block, so that segments can proceed to the next dimension while others are
/// still in this one.
///
/// With a codec, the ranks of the last dimension exchange their blocks directly: in a ring, a value
/// would be encoded again by each rank, and would lose precision each time.
class Builder {
 public:
  Builder(const Shape& shape, std::vector<Dimension> dimensions, PlanBuilder plan)
      : dimensions_(std::move(dimensions)),
        plan_(std::move(plan)),
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
    reduce_scatter_up_to(levels_.size());
    all_gather_from(levels_.size());
    return std::move(plan_).build();
  }

  Plan build_encoded() && {
    reduce_scatter_up_to(levels_.size() - 1);
    exchange(levels_.size() - 1);
    all_gather_from(levels_.size() - 1);
    return std::move(plan_).build();
  }

 private:
  /// In a dimension, coordinate c owns `weight` blocks from first + c * weight on: those of all
  /// ranks that share the coordinates up to this one.
  struct Level {
    std::uint32_t first = 0, weight = 1, tag = 0;
  };

  [[nodiscard]] std::uint32_t block(std::size_t level, std::uint32_t at, std::uint32_t rest) const {
    return levels_[level].first + at * levels_[level].weight + rest;
  }
  [[nodiscard]] std::uint32_t tag(std::size_t level, std::uint32_t rest, std::uint32_t step) const {
    return levels_[level].tag + rest * (dimensions_[level].size() - 1) + step;
  }

  /// Sends of later steps come first, because the next dimension begins with the coordinate before
  /// ours.
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

  void reduce_scatter_up_to(std::size_t end) {
    for (std::size_t level = 0; level < end; ++level) {
      for (const std::uint32_t rest : least_urgent_first(level)) reduce_scatter(level, rest);
    }
  }

  void all_gather_from(std::size_t end) {
    for (std::size_t level = end; level-- > 0;) {
      for (std::uint32_t rest = 0; rest < levels_[level].weight; ++rest) all_gather(level, rest);
    }
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

  /// Receives another rank's sum of a block and adds this rank's sum. If the own value is itself a
  /// result, it may not exist yet, so the received data wait for it in separate memory.
  void add(std::uint32_t block, std::uint32_t peer, std::uint32_t tag, bool complete) {
    if (value_[block].memory == Memory::kInput) {
      ready_[block] = plan_.receive_reduce(peer, tag, output_[block], value_[block], complete);
    } else {
      const Region arrived = plan_.scratch(value_[block].bytes);
      const std::uint32_t received = plan_.receive(peer, tag, arrived);
      ready_[block] =
          plan_.reduce(output_[block], arrived, value_[block], {received, ready_[block]}, complete);
    }
    value_[block] = output_[block];
  }

  /// Every rank encodes a block for each other rank, sums the blocks that it gets for its own,
  /// encodes the sum once and sends it to all.
  void exchange(std::size_t level) {
    const Dimension& all = dimensions_[level];
    const std::uint32_t own = block(level, all.index, 0);
    std::vector<Region> contributions;
    PlanBuilder::After after{ready_[own]}, sent, passed_on;
    for (std::uint32_t by = 1; by < all.size(); ++by) {
      const std::uint32_t peer = all.members[all.after(by)];
      const std::uint32_t theirs = block(level, all.after(by), 0);
      const Region encoded = plan_.encoded_scratch(output_[theirs].bytes);
      sent.push_back(
          plan_.send_encoded(peer, gather_tag_, value_[theirs], encoded, {ready_[theirs]}));
      contributions.push_back(plan_.encoded_scratch(output_[own].bytes));
      after.push_back(plan_.receive(peer, gather_tag_, contributions.back()));
    }
    const Region result = plan_.encoded_scratch(output_[own].bytes);
    ready_[own] = plan_.sum(output_[own], result, value_[own], contributions, after);
    for (std::uint32_t by = 1; by < all.size(); ++by) {
      const std::uint32_t theirs = block(level, all.after(by), 0);
      const std::uint32_t peer = all.members[all.after(by)];
      passed_on.push_back(plan_.send(peer, gather_tag_ + 1, result, {ready_[own]}));
      ready_[theirs] = plan_.receive_decode(peer, gather_tag_ + 1, output_[theirs]);
    }
    plan_.keep_pace(sent);
    plan_.keep_pace(passed_on);
    gather_tag_ += 2;
  }

  void all_gather(std::size_t level, std::uint32_t rest) {
    const Dimension& ring = dimensions_[level];
    for (std::uint32_t s = 0; s + 1 < ring.size(); ++s) {
      const std::uint32_t outgoing = block(level, ring.before(s), rest);
      const std::uint32_t incoming = block(level, ring.before(1 + s), rest);
      const std::uint32_t number = gather_tag_ + tag(level, rest, s);
      plan_.send(ring.members[ring.after(1)], number, output_[outgoing], {ready_[outgoing]});
      ready_[incoming] = plan_.receive(ring.members[ring.before(1)], number, output_[incoming]);
    }
  }

  const std::vector<Dimension> dimensions_;
  PlanBuilder plan_;
  const Blocks output_;
  std::vector<Region> value_;         // by block: the place of this rank's sum
  std::vector<std::uint32_t> ready_;  // by block: the step that completes it
  std::vector<Level> levels_;
  std::uint32_t gather_tag_ = 0;
};

}  // namespace

Plan dimensions::allreduce(const Shape& shape) {
  return Builder(shape, shape.layout->dimensions, PlanBuilder(Algorithm::kDimensions)).build();
}

Plan encoded::allreduce(const Shape& shape) {
  std::vector<Dimension> levels;
  if (shape.layout->local.size() > 1) levels.push_back(shape.layout->local);
  levels.push_back(shape.layout->hosts);
  PlanBuilder plan(Algorithm::kEncoded, shape.codec);
  return Builder(shape, std::move(levels), std::move(plan)).build_encoded();
}

}  // namespace slipstream
