#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "slipstream/codec.h"
#include "slipstream/collective.h"

namespace slipstream {

/// The buffers of an operation: the caller's two, and one that the engine lends it.
enum class Memory : std::uint8_t { kInput, kOutput, kScratch };

/// A range of bytes in one of them. An encoded one holds what the plan's codec makes of so many
/// bytes of float32.
struct Region {
  Memory memory = Memory::kInput;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool encoded = false;
  bool operator==(const Region&) const = default;
};

/// One step of a plan, on one rank. A send step:
///
/// - copy: `from` goes to `peer`, which has a receive with the same tag;
/// - encode: `from` is encoded into `encoded` when its turn has come, and that goes.
///
/// A receive step: `to` = incoming (copy), incoming op `operand` (reduce), incoming decoded
/// (decode).
///
/// A local step: `to` = `from` (copy), `from` op `operand` (reduce); or `encoded` = the sum of
/// `from` and all `contributions`, and `to` = that, decoded (sum).
///
/// A step works segment by segment. It may begin when the steps in `after` are done: segment by
/// segment where both touch the same region, as a whole where not. A receive waits for nothing, so
/// that no peer is ever held up by it; what it overwrites is free by the time anything can arrive.
struct Step {
  enum class Kind : std::uint8_t { kSend, kReceive, kLocal };
  /// Another step that this one waits for, or that waits for this one.
  struct Link {
    std::uint32_t step = 0;
    bool by_segment = false;
  };

  enum class Work : std::uint8_t { kCopy, kReduce, kEncode, kDecode, kSum };

  Kind kind{};
  Work work = Work::kCopy;
  bool divides = false;     ///< the reduction is complete: an average divides here
  std::uint32_t peer = 0;   ///< rank in the group
  std::uint32_t flock = 0;  ///< sends of one flock, but 0, keep about the same pace
  std::uint32_t tag = 0;    ///< unique for its sender and receiver within the operation
  Region from, to, operand;
  Region encoded;                     ///< of a sum, or of what is sent
  std::vector<Region> contributions;  ///< to a sum, encoded
  std::vector<Link> after;
  std::vector<Link> dependents;  ///< the inverse of `after`
};

/// What one rank does for one collective: a plain value, built once and run many times.
struct Plan {
  Algorithm algorithm = Algorithm::kAuto;
  Codec codec = Codec::kNone;
  bool sends_plain = false;                            ///< what is not encoded
  std::vector<std::vector<std::uint32_t>> flocks{{}};  ///< the steps of each; of 0 none
  std::vector<Step> steps;
  std::uint64_t scratch_bytes = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> receives;  ///< (peer, tag) -> step

  static std::uint64_t key(std::uint32_t peer, std::uint32_t tag) {
    return (std::uint64_t{peer} << 32U) | tag;
  }
};

/// Puts a plan together. Steps over no bytes are left out (both sides know the sizes) and stand as
/// kNone in dependencies, unless `keeps_empty`.
class PlanBuilder {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  using After = std::vector<std::uint32_t>;

  explicit PlanBuilder(Algorithm algorithm, bool keeps_empty = false) : keeps_empty_(keeps_empty) {
    plan_.algorithm = algorithm;
  }
  PlanBuilder(Algorithm algorithm, Codec codec) : PlanBuilder(algorithm) { plan_.codec = codec; }

  Region scratch(std::uint64_t bytes);
  /// For `bytes` of float32 in encoded form.
  Region encoded_scratch(std::uint64_t bytes);
  std::uint32_t send(std::uint32_t peer, std::uint32_t tag, const Region& from,
                     const After& after = {});
  std::uint32_t send_encoded(std::uint32_t peer, std::uint32_t tag, const Region& from,
                             const Region& encoded, const After& after);
  std::uint32_t receive(std::uint32_t peer, std::uint32_t tag, const Region& to);
  /// `to` = incoming op `own`, in this order.
  std::uint32_t receive_reduce(std::uint32_t peer, std::uint32_t tag, const Region& to,
                               const Region& own, bool divides = false);
  std::uint32_t receive_decode(std::uint32_t peer, std::uint32_t tag, const Region& to);
  /// `encoded` = `own` + all `contributions`, and `to` = that, decoded.
  std::uint32_t sum(const Region& to, const Region& encoded, const Region& own,
                    const std::vector<Region>& contributions, const After& after);
  std::uint32_t copy(const Region& to, const Region& from, const After& after = {});
  /// `to` = `lower` op `upper`, in this order.
  std::uint32_t reduce(const Region& to, const Region& lower, const Region& upper,
                       const After& after, bool divides = false);
  /// These sends keep about the same pace, so that no receiver is served last.
  void keep_pace(const After& sends);
  Plan build() &&;

 private:
  std::uint32_t add(Step step, const After& after);

  Plan plan_;
  bool keeps_empty_;
};

}  // namespace slipstream
