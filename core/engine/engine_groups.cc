#include <algorithm>
#include <utility>

#include "engine/engine.h"

// The creation, tuning, observation, abortion and closing of groups.
namespace slipstream {
namespace {

constexpr std::uint64_t kFnvPrime = 0x100000001b3U;

/// FNV-1a, which is the same on every rank, whatever its standard library.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return hash;
}

/// Whether another member has collectives or messages in flight that only this rank can complete.
bool is_awaited(const Group& group) {
  const auto is_ahead = [&](std::uint64_t submitted) { return submitted > group.started; };
  const auto asks = [](const Early& message) { return message.frame.kind == FrameKind::kRequest; };
  return std::ranges::any_of(group.submitted, is_ahead) ||
         std::ranges::any_of(group.messages, asks);
}

bool is_busy(const Group& group) {
  return !group.running.empty() || !group.sending.empty() || !group.receives.empty() ||
         !group.receiving.empty();
}

}  // namespace

/// The dimensions that the user set are those of the world. A group with other ranks derives its
/// dimensions from the places.
Layout Engine::layout_of(const std::vector<std::uint32_t>& ranks, std::uint32_t index) const {
  std::vector<Place> places;
  for (const std::uint32_t rank : ranks) places.push_back(world_.places[rank]);
  const bool is_world = ranks.size() == world_.identity.world_size;
  return make_layout(places, index,
                     is_world ? world_.options.dimensions : std::span<const std::uint32_t>());
}

/// The index of this rank among `ranks`, which must be different ranks of the world.
std::uint32_t Engine::check_members(const std::string& name,
                                    const std::vector<std::uint32_t>& ranks) const {
  const Identity& self = world_.identity;
  std::uint32_t index = kNotAMember;
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= self.world_size) {
      fail(ErrorKind::kUsage, "group '", name, "' names rank ", ranks[i],
           ", which does not exist; allowed: 0 to ", self.world_size - 1);
    }
    if (std::find(ranks.begin(), ranks.begin() + i, ranks[i]) != ranks.begin() + i) {
      fail(ErrorKind::kUsage, "group '", name, "' names rank ", ranks[i],
           " twice; name each rank once");
    }
    if (ranks[i] == self.rank) index = i;
  }
  if (index == kNotAMember) {
    fail(ErrorKind::kUsage, "group '", name, "' does not include this rank, ", self.rank,
         "; only its members may create it");
  }
  return index;
}

/// The same on all members that create groups with this name and these ranks in the same order.
std::uint64_t Engine::next_group_id(const std::string& name,
                                    const std::vector<std::uint32_t>& ranks) {
  std::uint64_t id = hash_of(name);
  for (const std::uint32_t rank : ranks) id = id * kFnvPrime + rank + 1;
  const std::scoped_lock lock(submit_mutex_);
  if (!accepting_) fail_closed();
  return id * kFnvPrime + ++group_instances_[concat(name, '/', id)];
}

std::shared_ptr<Group> Engine::make_group(const std::string& name,
                                          std::vector<std::uint32_t> ranks) {
  origin_.check();
  const std::uint32_t index = check_members(name, ranks);
  std::shared_ptr<Group> group;
  driver_.run_exclusively([&] {
    const std::uint64_t id = next_group_id(name, ranks);
    Layout layout = layout_of(ranks, index);
    group = std::make_shared<Group>(name, id, std::move(ranks), index, world_.identity.world_size,
                                    std::move(layout));
    world_.groups[id] = group;
    if (world_.closed_groups.erase(id) > 0) {
      const Error late(ErrorKind::kAborted,
                       concat("rank ", world_.identity.rank, " created group '", name,
                              "' too late: too much had arrived for it; create it earlier"));
      return failures_.fail_group(*group, late, false);
    }
    receiver_.deliver_early(*group);
  });
  return group;
}

void Engine::close_group(Group& group) {
  origin_.check();
  driver_.run_exclusively([&] {
    if (group.closed) return;
    start_submitted();
    const Error cause(ErrorKind::kAborted,
                      concat("rank ", world_.identity.rank, " closed group '", group.name(), "'"));
    // Operations that this rank has finished may still run on others, where they end normally.
    std::uint64_t first = group.started;
    for (const auto& [sequence, operation] : group.running) first = std::min(first, sequence);
    if (is_busy(group) || is_awaited(group)) failures_.fail_group(group, cause, true, first);
    failures_.drop_undelivered(group, 0);
    group.closed = true;
    world_.closed_groups[group.id()] = group.started;
    world_.groups.erase(group.id());
  });
}

void Engine::abort_group(Group& group, const std::string& reason) {
  origin_.check();
  driver_.run_exclusively([&] {
    start_submitted();
    const std::string why =
        concat("rank ", world_.identity.rank, " aborted group '", group.name(), "': ", reason);
    failures_.fail_group(group, Error(ErrorKind::kAborted, why), true);
  });
}

std::optional<Error> Engine::failure_of(Group& group) {
  origin_.check();
  std::optional<Error> failure;
  driver_.run_exclusively([&] { failure = group.failure; });
  return failure;
}

void Engine::tune_group(Group& group, const AllreduceTuning& tuning) {
  origin_.check();
  const EngineOptions& options = world_.options;
  const std::uint64_t segment = tuning.segment_bytes, most = options.segment_bytes;
  const std::uint64_t least = std::max<std::uint64_t>(options.eager_bytes, kMinSegmentBytes);
  if (segment != 0 && (segment < least || segment > most || segment % kSegmentGrain != 0)) {
    fail(ErrorKind::kUsage, "group '", group.name(), "' cannot have segments of ", segment,
         " bytes; allowed: multiples of ", kSegmentGrain, " from ", least, " to ", most);
  }
  const std::scoped_lock lock(submit_mutex_);
  group.tune(tuning);
}

void Engine::watch(Group& group, GroupWatcher* watcher) {
  driver_.run_exclusively([&] {
    group.watcher = watcher;
    if (watcher == nullptr) return;
    const std::uint64_t most = std::ranges::max(group.submitted);
    if (most > group.started) watcher->ahead(most);
    if (group.failure) watcher->troubled();
  });
}

bool Engine::wait_for_event(Completion& event, TimePoint until) {
  listeners_.fetch_add(1);
  const bool done = driver_.wait(event, until, /*returns_soon=*/true);
  listeners_.fetch_sub(1);
  return done;
}

void Engine::nudge(Group& group, std::uint32_t rank) {
  driver_.run_exclusively([&] {
    start_submitted();
    const auto latest = group.find(group.started - 1);
    if (!latest) return;
    Frame frame = world_.frame_for(FrameKind::kProbe, group, latest->sequence());
    frame.fingerprint = group.fingerprint(latest->request(), rank);
    world_.peer_of(group, rank).send_control(frame, {});
  });
}

}  // namespace slipstream
