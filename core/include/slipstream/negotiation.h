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

/// Where a framework finishes tensors in another order on each rank, the ranks of a group agree on
/// one order without a centre.
///
/// Every tensor that is known has a bit, the same on all ranks. In a round, each rank passes the
/// bits of what was submitted there, and one allreduce takes their AND: what remains is ready on
/// all ranks, in the order of the bits. That is all that travels while no tensor is new.
///
/// - A rank begins a round when it has something that it did not have in the last one, and takes
///   part in those of others as soon as their first message comes, if anything is submitted here.
///   If nothing is, the AND would be empty: it waits for `hold`, in which something may be
///   submitted. With nothing new anywhere, nothing is sent.
/// - One bit of the first word says "I have no news". Where it comes back as 0, the ranks exchange
///   fingerprints of the metadata of what is new to them, and of those that some rank has not, the
///   metadata, once. All merge them in the order of the ranks, so all give the same bits to the
///   same tensors. Who submits what is known already compares with what is known. Where metadata
///   differ, the ranks exchange what they passed: if that is one thing, it replaces what was known;
///   if not, the tensor fails on every rank, once.
/// - Tensors that were submitted together are fused: their bits are set when all of them are known,
///   so they become ready in the same round or not at all.
/// - A rank that has joined passes ones. When all have, the bit "I have joined" comes back as 1;
///   when some have, "I have not joined" comes back as 0.
/// - Bits are given to others when there are too many tensors: those that were ready the longest
///   time ago and, as one more AND tells, are submitted nowhere.
/// - A tensor that waits for too long makes its rank ask for a report, by a third bit. Then all
///   ranks exchange their bits, and the first one writes down who has submitted what.
namespace slipstream {

class Engine;
class Group;

/// What all ranks must pass alike for a tensor.
struct TensorSpec {
  std::string name;  ///< stands for the tensor on all ranks; not empty
  Collective collective = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  ///< -1 where ranks may differ
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t root = 0;
  Codec codec = Codec::kNone;
  std::string note;  ///< whatever else must agree, as text

  bool operator==(const TensorSpec&) const = default;
};

/// A tensor, and what its submitter calls it.
struct Submission {
  std::shared_ptr<const TensorSpec> tensor;
  std::uint64_t token = 0;
};

struct AgreedTensor {
  std::shared_ptr<const TensorSpec> tensor;
  bool submitted = true;  ///< false: this rank has joined; it takes part without data of its own
  std::uint64_t token = 0;
  std::uint32_t fused = 0;  ///< equal for those that were submitted together, which stand together
};

struct FailedTensor {
  std::shared_ptr<const TensorSpec> tensor;
  std::uint64_t token = 0;
  Error error;
};

/// What the ranks agreed on in a round.
struct Outcome {
  std::uint64_t round = 0;
  std::vector<AgreedTensor> ready;           ///< the same tensors in the same order on all ranks
  std::vector<FailedTensor> failed;          ///< those submitted here
  bool some_joined = false;                  ///< what is ready is so without data of some rank
  std::optional<std::uint32_t> last_joined;  ///< all have joined, and this rank was the last
};

struct NegotiationOptions {
  /// At least so long from the begin of one round to that of the next: fewer rounds with more each.
  std::chrono::nanoseconds cycle{0};
  std::chrono::nanoseconds hold = std::chrono::milliseconds(500);  ///< equal on all ranks is best
  std::chrono::nanoseconds stall_after = std::chrono::seconds(60);
  std::uint32_t most_tensors = 65536;  ///< known at a time, unless more wait; equal on all ranks
};

struct NegotiationStats {
  std::uint64_t rounds = 0;
  std::uint64_t void_rounds = 0;    ///< in which nothing became ready
  std::uint64_t introductions = 0;  ///< rounds in which metadata travelled
  std::uint64_t tensors = 0;        ///< that became ready
  std::uint64_t known_tensors = 0;
  std::uint64_t stalls_reported = 0;
  std::uint64_t messages = 0;       ///< sent and received, as the plans say
  std::uint64_t payload_bytes = 0;  ///< sent, without headers
};

/// One rank's part in the negotiations of a group, with a thread of its own. All members make it
/// alike, in the same order. Its functions may be called from any thread; none but next() and
/// close() blocks.
class Negotiator {
 public:
  /// The engine must outlive it.
  Negotiator(Engine& engine, const std::shared_ptr<Group>& group, const NegotiationOptions& options,
             Log log);
  ~Negotiator();
  Negotiator(const Negotiator&) = delete;
  Negotiator& operator=(const Negotiator&) = delete;

  /// Tensors that are ready together or not at all; usually one. Throws Error(kUsage) for a name
  /// that was submitted and is not ready, and what the negotiator has failed with.
  void submit(std::span<const Submission> tensors);
  /// As submit() of one after another, but all of them are in the next round. Where it throws,
  /// those before the one at fault are submitted.
  void submit_each(std::span<const Submission> tensors);
  /// This rank has no more data, once what it has submitted is ready: it counts as ready for
  /// everything until all ranks have joined. It submits nothing meanwhile.
  void join();

  /// Blocks until there is an outcome that concerns this rank, or for `timeout`: nothing then.
  /// Throws, after the last outcome, what the negotiator has failed with, or Error(kAborted) when
  /// it is closed.
  std::optional<Outcome> next(std::chrono::nanoseconds timeout);

  [[nodiscard]] NegotiationStats stats() const;
  /// What waits fails, here and at the members. Idempotent.
  void close();

 private:
  std::unique_ptr<class NegotiationThread> thread_;
};

}  // namespace slipstream
