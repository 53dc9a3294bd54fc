#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "slipstream/codec.h"
#include "slipstream/collective.h"

namespace slipstream {

/// The buffers of an operation: the caller's two, and scratch memory of the engine.
enum class Memory : std::uint8_t { kInput, kOutput, kScratch };

/// A range of bytes in one of the buffers. If it is encoded, `bytes` still counts float32 data, and
/// the memory contains their encoding.
struct Region {
  Memory memory = Memory::kInput;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool encoded = false;
  bool operator==(const Region&) const = default;
};

/// One step of a plan on one rank. Send steps:
///
/// - copy: sends `from` to `peer`, which has a receive step with the same tag;
/// - encode: encodes `from` into `encoded` just before it is sent, and sends `encoded`.
///
/// Receive steps write incoming data to `to`: unchanged (copy), combined with `operand` (reduce),
/// or decoded (decode).
///
/// Local steps compute `to` = `from` (copy) or `to` = `from` op `operand` (reduce); or they encode
/// the sum of `from` and all `contributions` into `encoded` and decode it to `to` (sum).
///
/// A step works segment by segment. It may begin when the steps in `after` are done: segment by
/// segment if both touch the same region, and as a whole otherwise. A receive step waits for
/// nothing, so that it never holds up a peer; the memory that it overwrites is free before anything
/// can arrive.
struct Step {
  enum class Kind : std::uint8_t { kSend, kReceive, kLocal };
  /// Another step for which this step waits, or which waits for this step.
  struct Link {
    std::uint32_t step = 0;
    bool by_segment = false;
  };

  enum class Work : std::uint8_t { kCopy, kReduce, kEncode, kDecode, kSum };

  Kind kind{};
  Work work = Work::kCopy;
  bool divides = false;     ///< this step completes the reduction, so an average divides here
  std::uint32_t peer = 0;   ///< rank in the group
  std::uint32_t flock = 0;  ///< sends with the same number keep about the same pace; 0: none
  std::uint32_t tag = 0;    ///< unique for its sender and receiver within the operation
  Region from, to, operand;
  Region encoded;                     ///< result of a sum, or data to send
  std::vector<Region> contributions;  ///< encoded operands of a sum
  std::vector<Link> after;
  std::vector<Link> dependents;  ///< the inverse of `after`
};

/// The work of one rank in one collective: a plain value that is built once and run many times.
struct Plan {
  Algorithm algorithm = Algorithm::kAuto;
  Codec codec = Codec::kNone;
  bool sends_plain = false;  ///< whether any data are sent without encoding
  std::vector<std::vector<std::uint32_t>> flocks{{}};  ///< steps of each flock; flock 0 is empty
  std::vector<Step> steps;
  std::uint64_t scratch_bytes = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> receives;  ///< (peer, tag) -> step

  static std::uint64_t key(std::uint32_t peer, std::uint32_t tag) {
    return (std::uint64_t{peer} << 32U) | tag;
  }
};

/// Builds a plan. Steps without bytes are left out (both sides know the sizes), and dependencies on
/// them are kNone, unless `keeps_empty`.
class PlanBuilder {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  using After = std::vector<std::uint32_t>;

  explicit PlanBuilder(Algorithm algorithm, bool keeps_empty = false) : keeps_empty_(keeps_empty) {
    plan_.algorithm = algorithm;
  }
  PlanBuilder(Algorithm algorithm, Codec codec) : PlanBuilder(algorithm) { plan_.codec = codec; }

  Region scratch(std::uint64_t bytes);
  /// Scratch memory for the encoding of `bytes` of float32 data.
  Region encoded_scratch(std::uint64_t bytes);
  std::uint32_t send(std::uint32_t peer, std::uint32_t tag, const Region& from,
                     const After& after = {});
  std::uint32_t send_encoded(std::uint32_t peer, std::uint32_t tag, const Region& from,
                             const Region& encoded, const After& after);
  std::uint32_t receive(std::uint32_t peer, std::uint32_t tag, const Region& to);
  /// Computes `to` = incoming op `own`, in this order.
  std::uint32_t receive_reduce(std::uint32_t peer, std::uint32_t tag, const Region& to,
                               const Region& own, bool divides = false);
  std::uint32_t receive_decode(std::uint32_t peer, std::uint32_t tag, const Region& to);
  /// Encodes the sum of `own` and all `contributions` into `encoded`, and decodes it to `to`.
  std::uint32_t sum(const Region& to, const Region& encoded, const Region& own,
                    const std::vector<Region>& contributions, const After& after);
  std::uint32_t copy(const Region& to, const Region& from, const After& after = {});
  /// Computes `to` = `lower` op `upper`, in this order.
  std::uint32_t reduce(const Region& to, const Region& lower, const Region& upper,
                       const After& after, bool divides = false);
  /// Makes these sends keep about the same pace, so that no receiver is served last.
  void keep_pace(const After& sends);
  Plan build() &&;

 private:
  std::uint32_t add(Step step, const After& after);

  Plan plan_;
  bool keeps_empty_;
};

}  // namespace slipstream
