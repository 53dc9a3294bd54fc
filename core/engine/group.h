#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collective/shape.h"
#include "engine/operation.h"
#include "engine/peer.h"
#include "slipstream/request.h"

namespace slipstream {

constexpr std::uint32_t kNotAMember = ~std::uint32_t{0};

/// A small message that arrived before the operation that will take it.
struct Early {
  std::uint32_t peer = 0;  ///< rank in the world
  Frame frame;
  std::vector<std::byte> payload;
};

/// The arguments that ranks have reported after two of them were found to differ.
struct Mismatch {
  std::uint64_t sequence = 0;
  std::map<std::uint32_t, std::string> passed;  ///< by rank in the group
  TimePoint deadline{};
};

/// Identifies a message between two ranks of a group by (peer, sequence).
using MessageKey = std::pair<std::uint32_t, std::uint64_t>;

/// Observes a group, even if this rank has no operation in flight there. It is called under the
/// driver's token, so it must neither block nor call the engine.
class GroupWatcher {
 public:
  virtual ~GroupWatcher() = default;
  /// A member has begun all collectives below `number`, which this rank has not.
  virtual void ahead(std::uint64_t number) = 0;
  /// The group has failed, or a member has left.
  virtual void troubled() = 0;
};

/// A set of ranks with its own sequence of operations. The members above "driver" are constant or
/// belong to the submission; only the driver touches the others.
class Group {
 public:
  Group(std::string name, std::uint64_t id, std::vector<std::uint32_t> ranks, std::uint32_t rank,
        std::uint32_t world_size, Layout layout);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  /// Ranks in the world, by rank in the group.
  [[nodiscard]] const std::vector<std::uint32_t>& ranks() const { return ranks_; }
  [[nodiscard]] std::uint32_t index_of(std::uint32_t world_rank) const {
    return world_rank < index_.size() ? index_[world_rank] : kNotAMember;
  }

  [[nodiscard]] const Layout& layout() const { return layout_; }

  /// The plan for a shape, created at its first use. Call under the submission lock.
  std::shared_ptr<const Plan> plan_for(const Shape& shape, Algorithm forced);
  std::uint64_t next_sequence = 0;  // under the submission lock
  /// Fills in the fields that the request leaves open and that the group's tuning sets. Call under
  /// the submission lock.
  void complete(Request& request) const;
  void tune(const AllreduceTuning& tuning) { tuning_ = tuning; }  // under the submission lock

  // ---- driver ----
  /// The operation of this rank with this number, if it is in flight; otherwise nullptr.
  [[nodiscard]] std::shared_ptr<Operation> find(std::uint64_t sequence) const;
  /// A description of the arguments that this rank passed for that operation, if still known.
  [[nodiscard]] std::optional<std::string> passed(std::uint64_t sequence) const;
  /// Whether a peer's `frame` belongs to the same operation as ours with that number; true if this
  /// is unknown.
  [[nodiscard]] bool agrees(std::uint32_t peer, const Frame& frame) const;
  /// A hash of the properties on which this rank and `peer` must agree.
  [[nodiscard]] std::uint64_t fingerprint(const Request& request, std::uint32_t peer) const;
  void remember(const Operation& operation);
  /// "allreduce 'grad.3' of group 'world' (operation 17)": the last collective that was started
  /// here; empty if there was none.
  [[nodiscard]] std::string last_title() const;
  std::uint64_t last_order = 0;  // of the same collective; see Operation::order()

  std::uint64_t started = 0;  // collectives started here; also the number of the next one
  std::unordered_map<std::uint64_t, std::shared_ptr<Operation>> running;
  std::unordered_map<std::uint64_t, std::vector<Early>> early;
  // For each rank: it has posted all operations below this number.
  std::vector<std::uint64_t> posted;
  // For each rank: it has submitted all operations below this number.
  std::vector<std::uint64_t> submitted;
  std::map<MessageKey, std::vector<Segment>> uncredited;  // bulk segments that wait for a post
  std::map<MessageKey, std::vector<Segment>> unpooled;    // small payloads that wait for a post
  std::map<MessageKey, bool> requested;                   // peers that have asked for a post
  std::optional<Error> failure;
  /// The first operation that the failure concerns. A member that has left has finished the earlier
  /// ones.
  std::uint64_t failed_from = ~std::uint64_t{0};
  std::optional<Mismatch> mismatch;
  bool closed = false;
  GroupWatcher* watcher = nullptr;

  // Point to point: messages are numbered by the sender, for each receiver.
  std::vector<std::uint64_t> next_message;                     // by receiver
  std::map<MessageKey, std::shared_ptr<Operation>> sending;    // by (receiver, number)
  std::map<MessageKey, std::shared_ptr<Operation>> receiving;  // by (sender, number)
  std::list<std::shared_ptr<Operation>> receives;              // not matched, in order
  std::list<Early> messages;                                   // not matched, in order

 private:
  struct Remembered {
    std::uint64_t sequence = 0;
    Request request;
  };

  const std::string name_;
  const std::uint64_t id_;
  const std::vector<std::uint32_t> ranks_;
  const std::uint32_t rank_;
  const Layout layout_;
  std::vector<std::uint32_t> index_;
  std::vector<std::pair<Shape, std::shared_ptr<const Plan>>> plans_;
  std::size_t next_plan_ = 0;
  std::optional<AllreduceTuning> tuning_;
  std::deque<Remembered> history_;
};

/// The shape of a request on one rank of a group. Throws Error(kUsage) if no plan supports it.
Shape shape_of(const Request& request, const Group& group);

}  // namespace slipstream
