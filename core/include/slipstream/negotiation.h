#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "slipstream/codec.h"
#include "slipstream/collective.h"
#include "slipstream/dtype.h"
#include "slipstream/error.h"
#include "slipstream/log.h"

/// Some frameworks finish tensors in a different order on each rank. A negotiation finds one order
/// for all ranks of a group, without a coordinator.
///
/// Every known tensor has a bit, which is the same on all ranks. In a round, each rank passes the
/// bits of its submitted tensors to one allreduce that computes their AND. The tensors whose bits
/// remain are ready on all ranks, in the order of the bits. Nothing else is sent while no tensor is
/// new.
///
/// - A rank begins a round if it has something that it did not have in the last round. It joins a
///   round of other ranks as soon as their first message arrives, if it has submitted tensors. If
///   it has none, the AND would be empty, so it first waits up to `hold` for a submission. If no
///   rank has anything new, nothing is sent.
/// - One bit of the first word means "I have no news". If its AND is 0, the ranks exchange
///   fingerprints of the metadata that is new to them, and then, once, the metadata that some rank
///   lacks. All ranks merge it in the order of the ranks, so a tensor gets the same bit everywhere.
///   The submitter of a known tensor compares its metadata itself. If metadata differ, the ranks
///   exchange what they passed. If they all passed the same, it replaces the known metadata; if
///   not, the tensor fails once on every rank.
/// - Tensors that were submitted together are fused: their bits are set once all of them are known,
///   so they become ready in the same round or not at all.
/// - A rank that has joined passes ones. The AND of the bit "I have joined" is 1 once all ranks
///   have joined; the AND of "I have not joined" is 0 once some have.
/// - If there are too many tensors, bits are given to other tensors. They are taken from the
///   tensors that have not been ready for the longest time and that, as one more AND shows, no rank
///   has submitted.
/// - If a tensor waits for too long, its rank asks for a report with a third bit. All ranks then
///   exchange their bits, and rank 0 logs who has submitted what.
namespace slipstream {

class Engine;
class Group;

/// The properties of a tensor that must be equal on all ranks.
struct TensorSpec {
  std::string name;  ///< identifies the tensor on all ranks; not empty
  Collective collective = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  ///< -1 for dimensions that may differ between ranks
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t root = 0;
  Codec codec = Codec::kNone;
  std::string note;  ///< other properties that must be equal, as text

  bool operator==(const TensorSpec&) const = default;
};

/// A tensor, with a token that its submitter chooses.
struct Submission {
  std::shared_ptr<const TensorSpec> tensor;
  std::uint64_t token = 0;
};

struct AgreedTensor {
  std::shared_ptr<const TensorSpec> tensor;
  bool submitted = true;  ///< false if this rank has joined and takes part without data of its own
  std::uint64_t token = 0;
  std::uint32_t fused = 0;  ///< equal, and adjacent, for tensors that were submitted together
};

struct FailedTensor {
  std::shared_ptr<const TensorSpec> tensor;
  std::uint64_t token = 0;
  Error error;
};

/// The result of a round.
struct Outcome {
  std::uint64_t round = 0;
  std::vector<AgreedTensor> ready;   ///< the same tensors in the same order on all ranks
  std::vector<FailedTensor> failed;  ///< only tensors that this rank submitted
  /// Whether some rank had joined and takes part in `ready` without data.
  bool some_joined = false;
  /// Set once all ranks have joined: the rank that joined last.
  std::optional<std::uint32_t> last_joined;
};

struct NegotiationOptions {
  /// Minimum time between the beginnings of two rounds. A larger value gives fewer rounds with more
  /// tensors each.
  std::chrono::nanoseconds cycle{0};
  std::chrono::nanoseconds hold = std::chrono::milliseconds(500);  ///< best if equal on all ranks
  std::chrono::nanoseconds stall_after = std::chrono::seconds(60);
  /// Tensors that are known at the same time, unless more are waiting; equal on all ranks.
  std::uint32_t most_tensors = 65536;
};

struct NegotiationStats {
  std::uint64_t rounds = 0;
  std::uint64_t void_rounds = 0;    ///< rounds in which nothing became ready
  std::uint64_t introductions = 0;  ///< rounds in which metadata was sent
  std::uint64_t tensors = 0;        ///< tensors that became ready
  std::uint64_t known_tensors = 0;
  std::uint64_t stalls_reported = 0;
  std::uint64_t messages = 0;       ///< sent and received, according to the plans
  std::uint64_t payload_bytes = 0;  ///< sent, without headers
};

/// One rank's part in the negotiations of a group, with its own thread. All members create it, in
/// the same order. Any thread may call its functions; only next() and close() block.
class Negotiator {
 public:
  /// The engine must outlive the negotiator.
  Negotiator(Engine& engine, const std::shared_ptr<Group>& group, const NegotiationOptions& options,
             Log log);
  ~Negotiator();
  Negotiator(const Negotiator&) = delete;
  Negotiator& operator=(const Negotiator&) = delete;

  /// Submits tensors that become ready together or not at all; usually one. Throws Error(kUsage) if
  /// a name is already submitted and not yet ready, or the error with which the negotiator has
  /// failed.
  void submit(std::span<const Submission> tensors);
  /// Like submit() for one tensor after another, but all of them take part in the same next round.
  /// If it throws, the tensors before the faulty one are submitted.
  void submit_each(std::span<const Submission> tensors);
  /// States that this rank has no more data. Once its submitted tensors are ready, the rank counts
  /// as ready for every tensor until all ranks have joined. It must not submit anything meanwhile.
  void join();

  /// Blocks until there is an outcome that concerns this rank; returns nothing after `timeout`.
  /// After the last outcome it throws the error with which the negotiator has failed, or
  /// Error(kAborted) once it is closed.
  std::optional<Outcome> next(std::chrono::nanoseconds timeout);

  [[nodiscard]] NegotiationStats stats() const;
  /// Fails all waiting tensors, here and on the other members. Idempotent.
  void close();

 private:
  std::unique_ptr<class NegotiationThread> thread_;
};

}  // namespace slipstream
