#include <algorithm>
#include <utility>

#include "engine/failures.h"

// Reports about operations that wait for long: for which ranks they wait, and what has changed
// since the last report.
namespace slipstream {
namespace {

void append(std::string& list, const std::string& item) {
  list += concat(list.empty() ? "" : ", ", item);
}

}  // namespace

void Failures::stall(const std::shared_ptr<Operation>& operation) {
  const Nanoseconds age = world_.now - operation->submitted;
  operation->report_at = world_.now + age;
  ++world_.stats.stalls_reported;
  const std::string state = state_of(*operation);
  const bool is_first = !operation->reported;
  world_.log(LogLevel::kWarning, state, changes(*operation));
  tell_stall(*operation);
  if (!is_first) return;
  world_.note(FlightEvent::Kind::kStalled, kNoRank, &operation->group(), operation->sequence(),
              state);
  world_.flight.alarm();
}

/// Tells the ranks that have not submitted the operation that this rank waits for it.
void Failures::tell_stall(const Operation& operation) const {
  Group& group = operation.group();
  Frame frame = world_.frame_for(FrameKind::kProbe, group, operation.sequence());
  frame.flags = kAfterStall;
  if (!operation.is_point_to_point()) {
    for (const std::uint32_t rank : absent_from(operation)) {
      frame.fingerprint = group.fingerprint(operation.request(), rank);
      world_.peer_of(group, rank).send_control(frame, {});
    }
  } else if (operation.request().root != kAnyPeer) {
    frame.flags |= kPointToPoint;
    world_.peer_of(group, operation.request().root).send_control(frame, {});
  }
}

void Failures::on_stalled_probe(const Peer& peer, const Group& group, const Frame& frame) {
  constexpr auto kAwaited = FlightEvent::Kind::kAwaited;
  const bool point_to_point = (frame.flags & kPointToPoint) != 0;
  if (!point_to_point && frame.sequence < group.started) return;
  if (world_.flight.has(kAwaited, group.name(), frame.sequence)) return;
  world_.note(kAwaited, peer.rank(), &group, frame.sequence,
              concat(world_.name_of(peer.rank()), " waits for ",
                     point_to_point ? "a message" : concat("operation ", frame.sequence),
                     " of group '", group.name(), "', which this rank has not submitted"));
  world_.flight.alarm();
}

std::string Failures::state_of(const Completion& completion) const {
  for (const auto& operation : operations_in_flight()) {
    if (operation->completion().get() == &completion) return state_of(*operation);
  }
  return "";
}

std::string Failures::state_of(const Operation& operation) const {
  return concat(operation.title(), " has waited for ", seconds_since(operation.submitted),
                " s: ", waiting_for(operation), "; the operation continues until its timeout of ",
                seconds(operation.deadline - operation.submitted), " s");
}

/// The changes since the operation's last report, if there was one; records the current state.
std::string Failures::changes(Operation& operation) const {
  const StallReport now{absent_from(operation), operation.segments_left(),
                        world_.stats.operations + world_.stats.failed_operations};
  const auto last = std::exchange(operation.reported, now);
  if (!last) return "";
  std::string text;
  for (const std::uint32_t rank : last->absent) {
    if (std::ranges::find(now.absent, rank) != now.absent.end()) continue;
    append(text, world_.name_of(operation.group().ranks()[rank]) + " has submitted it");
  }
  if (const auto done = last->segments_left - now.segments_left; done > 0) {
    append(text, concat(done, done == 1 ? " segment has" : " segments have", " been transferred"));
  }
  if (const auto ended = now.ended - last->ended; ended > 0) {
    append(text,
           concat(ended, ended == 1 ? " other operation has" : " other operations have", " ended"));
  }
  return text.empty() ? "; nothing has changed since the last report"
                      : "; since the last report: " + text;
}

/// The ranks of the group that are not known to have submitted the collective.
std::vector<std::uint32_t> Failures::absent_from(const Operation& operation) const {
  const Group& group = operation.group();
  std::vector<std::uint32_t> absent;
  if (operation.is_point_to_point()) return absent;
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    if (group.submitted[rank] <= operation.sequence()) absent.push_back(rank);
  }
  return absent;
}

std::string Failures::waiting_for(const Operation& operation) const {
  const Group& group = operation.group();
  if (operation.is_point_to_point()) {
    const std::uint32_t root = operation.request().root;
    if (root == kAnyPeer) {
      return concat("no rank has sent a message with tag ", operation.request().tag);
    }
    const bool sends = operation.request().collective == Collective::kSend;
    return concat(world_.name_of(group.ranks()[root]),
                  sends ? " has not received it" : " has not sent it");
  }
  std::string absent, silent;
  const std::vector<std::uint32_t> missing = absent_from(operation);
  for (const std::uint32_t rank : missing) append(absent, world_.name_of(group.ranks()[rank]));
  if (!absent.empty()) {
    return absent + (missing.size() == 1 ? " has not submitted it" : " have not submitted it");
  }
  std::size_t num_silent = 0;
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank() || !operation.needs(rank)) continue;
    append(silent, world_.name_of(group.ranks()[rank]));
    ++num_silent;
  }
  if (silent.empty()) return "all ranks have submitted it, and the data are on their way";
  return silent + (num_silent == 1 ? " has submitted it, but its data are missing"
                                   : " have submitted it, but their data are missing");
}

}  // namespace slipstream
