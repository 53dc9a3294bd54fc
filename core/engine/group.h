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

/// A small message that came before the operation that takes it.
struct Early {
  std::uint32_t peer = 0;  ///< rank in the world
  Frame frame;
  std::vector<std::byte> payload;
};

/// What ranks have said they passed, after two were found to differ.
struct Mismatch {
  std::uint64_t sequence = 0;
  std::map<std::uint32_t, std::string> passed;  ///< by rank in the group
  TimePoint deadline{};
};

/// The names of one (peer, sequence): a message between two ranks of a group.
using MessageKey = std::pair<std::uint32_t, std::uint64_t>;

/// Looks after a group in which this rank may have nothing in flight. Called under the driver's
/// token: it must neither block nor call the engine.
class GroupWatcher {
 public:
  virtual ~GroupWatcher() = default;
  /// A member has begun all collectives below `number`, more than this rank.
  virtual void ahead(std::uint64_t number) = 0;
  /// The group has failed, or a member has left.
  virtual void troubled() = 0;
};

/// A set of ranks with a sequence of operations of its own. The part above "driver" is set once or
/// belongs to the submission; the rest is touched by the driver only.
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

  /// The plan for a shape, made on first use and kept. Under the submission lock.
  std::shared_ptr<const Plan> plan_for(const Shape& shape, Algorithm forced);
  std::uint64_t next_sequence = 0;  // under the submission lock
  /// Fills in what the request leaves open and the group is tuned to. Under the submission lock.
  void complete(Request& request) const;
  void tune(const AllreduceTuning& tuning) { tuning_ = tuning; }  // under the submission lock

  // ---- driver ----
  /// An operation of this rank by its number, in flight; nullptr if it is not.
  [[nodiscard]] std::shared_ptr<Operation> find(std::uint64_t sequence) const;
  /// What this rank passed as that operation, if it is known still.
  [[nodiscard]] std::optional<std::string> passed(std::uint64_t sequence) const;
  /// Whether `frame`, of a peer, is of the same operation as ours with that number, as far as
  /// known.
  [[nodiscard]] bool agrees(std::uint32_t peer, const Frame& frame) const;
  /// What this rank and `peer` must agree on.
  [[nodiscard]] std::uint64_t fingerprint(const Request& request, std::uint32_t peer) const;
  void remember(const Operation& operation);

  std::uint64_t started = 0;  // collectives started here: the next one's number
  std::unordered_map<std::uint64_t, std::shared_ptr<Operation>> running;
  std::unordered_map<std::uint64_t, std::vector<Early>> early;
  std::vector<std::uint64_t> posted;     // by rank: operations below this number are posted there
  std::vector<std::uint64_t> submitted;  // by rank: operations below are known to be submitted
  std::map<MessageKey, std::vector<Segment>> uncredited;  // bulk segments waiting for a post
  std::map<MessageKey, std::vector<Segment>> unpooled;    // small payloads waiting for a post
  std::map<MessageKey, bool> requested;                   // peers that ask for a post
  std::optional<Error> failure;
  /// The first operation that the failure concerns: a member that has left did finish those before.
  std::uint64_t failed_from = ~std::uint64_t{0};
  std::optional<Mismatch> mismatch;
  bool closed = false;
  GroupWatcher* watcher = nullptr;

  // Point to point: numbered by sender for each receiver.
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

/// The shape of a request on one rank of a group. Throws Error(kUsage) for what no plan can do.
Shape shape_of(const Request& request, const Group& group);

}  // namespace slipstream
