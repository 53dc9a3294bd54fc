#include "engine/failures.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

namespace slipstream {
namespace {

constexpr Nanoseconds kProbeAfter = 1s;
constexpr Nanoseconds kCollectDescriptions = 2s;
constexpr int kHeartbeatsPerTimeout = 5;
constexpr std::size_t kLongestText = 4000;  // bytes; fits the smallest control slot

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text)).first(std::min(text.size(), kLongestText));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// "stream 3", "streams 0, 2, 5".
std::string streams_of(const std::vector<std::uint32_t>& numbers) {
  std::string text = numbers.size() == 1 ? "stream" : "streams";
  for (const std::uint32_t number : numbers) {
    text += concat(text.back() == 's' || text.back() == 'm' ? " " : ", ", number);
  }
  return text;
}

}  // namespace

void Failures::tick() {
  watch_peers();
  tell_stream_news();
  watch_operations();
  watch_mismatches();
}

/// Reports lost streams one tick later, because a peer that leaves closes its streams in any order
/// and may have said goodbye on another one.
void Failures::tell_stream_news() {
  for (const auto& [rank, news] : std::exchange(stream_news_, {})) {
    const Peer& peer = *world_.peers[rank];
    if (peer.left() || peer.gone()) continue;
    if (!news.lost.empty()) {
      world_.note(FlightEvent::Kind::kStreamsLost, rank, nullptr, 0,
                  concat(streams_of(news.lost), ": ", news.reason));
      world_.log(LogLevel::kWarning, "lost ", streams_of(news.lost), " to ", world_.name_of(rank),
                 ": ", news.reason,
                 news.is_cut ? "; no stream was left, and this rank waits for a new connection"
                             : "; data in flight are sent again on another stream");
    }
    if (!news.opened.empty()) {
      world_.note(FlightEvent::Kind::kStreamsOpened, rank, nullptr, 0, streams_of(news.opened));
      world_.log(LogLevel::kInfo, streams_of(news.opened), " to ", world_.name_of(rank),
                 news.opened.size() == 1 ? " is" : " are", " open again");
    }
  }
}

void Failures::watch_peers() {
  for (const auto& peer : world_.peers) {
    if (!peer || !peer->reachable()) continue;
    peer->send_acknowledgements(true);
    const Nanoseconds most = world_.options.peer_timeout;
    if (world_.now - peer->sent() > std::min(most / kHeartbeatsPerTimeout, Silence::kHeartbeat)) {
      peer->send_heartbeat(world_.now);
    }
    const Nanoseconds patience = peer->patience(most);
    if (!peer->left() && world_.now - peer->heard() > patience) {
      const bool regular = patience < most;
      peer_gone(*peer, concat("has been silent for ", seconds_since(peer->heard()), " s; allowed: ",
                              seconds(patience), " s", regular ? " after regular heartbeats" : "",
                              " (SLIPSTREAM_PEER_TIMEOUT is ", seconds(most), ")"));
    }
  }
}

std::vector<std::shared_ptr<Operation>> Failures::operations_in_flight() const {
  std::vector<std::shared_ptr<Operation>> all;
  for (const auto& [id, group] : world_.groups) {
    for (const auto& [sequence, operation] : group->running) all.push_back(operation);
    for (const auto& [key, operation] : group->sending) all.push_back(operation);
    for (const auto& [key, operation] : group->receiving) all.push_back(operation);
    all.insert(all.end(), group->receives.begin(), group->receives.end());
  }
  return all;
}

void Failures::watch_operations() {
  for (const auto& operation : operations_in_flight()) {
    if (operation->completion()->done()) continue;
    if (world_.now >= operation->deadline) {
      time_out(operation);
      continue;
    }
    const Nanoseconds timeout = operation->deadline - operation->submitted;
    const Nanoseconds patience = std::min<Nanoseconds>(kProbeAfter, timeout / 4);
    if (world_.now - operation->progressed > patience &&
        world_.now - operation->probed > patience) {
      probe(*operation);
      operation->probed = world_.now;
    }
    if (world_.now >= operation->report_at) stall(operation);
  }
}

void Failures::time_out(const std::shared_ptr<Operation>& operation) {
  const std::string why = concat("reached its timeout after ", seconds_since(operation->submitted),
                                 " s: ", waiting_for(*operation));
  operations_.fail(operation, Error(ErrorKind::kPeerTimeout, why));
  fail_group(operation->group(),
             Error(ErrorKind::kPeerTimeout, concat(operation->title(), " ", why)), true);
}

void Failures::probe(const Operation& operation) {
  if (operation.is_point_to_point()) return;
  Group& group = operation.group();
  Frame frame = world_.frame_for(FrameKind::kProbe, group, operation.sequence());
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    frame.fingerprint = group.fingerprint(operation.request(), rank);
    world_.peer_of(group, rank).send_control(frame, {});
  }
}

void Failures::stream_lost(std::uint32_t rank, std::uint32_t stream, const std::string& reason) {
  Peer& peer = *world_.peers[rank];
  if (peer.gone()) return;
  if (!peer.link()) return;
  const bool others = peer.lose_stream(stream);
  const bool heals = peer.link()->reconnects() && !peer.left() && !world_.closed;
  if (!others && !heals) return peer_gone(peer, concat("is gone: ", reason));
  peer.why_cut = reason;
  StreamNews& news = stream_news_[rank];
  if (news.lost.empty()) news.reason = reason;
  news.lost.push_back(stream);
  news.is_cut = news.is_cut || !others;
}

void Failures::stream_opened(std::uint32_t rank, std::uint32_t stream) {
  Peer& peer = *world_.peers[rank];
  if (peer.gone()) return;
  peer.open_stream(stream);
  stream_news_[rank].opened.push_back(stream);
}

void Failures::unreachable(std::uint32_t rank, const std::string& reason) {
  Peer& peer = *world_.peers[rank];
  if (!peer.gone()) peer_gone(peer, concat("is gone: ", peer.why_cut, "; ", reason));
}

void Failures::break_off(Peer& peer, const Frame& frame, const std::string& why) {
  peer_gone(peer, concat("breaks the protocol: it sent a frame of kind ",
                         static_cast<int>(frame.kind), " ", why,
                         "; install the same Slipstream on all hosts, set SLIPSTREAM_TLS=1 if the "
                         "network may change bytes, or report it"));
}

void Failures::peer_gone(Peer& peer, const std::string& reason) {
  const bool expected = peer.left() || world_.closed;
  const std::string name = world_.name_of(peer.rank());
  const std::string why = concat(reason, expected ? "" : activity_with(peer));
  peer.mark_gone(why);
  if (expected) return fail_operations_with(peer);
  world_.log(LogLevel::kError, name, " ", why);
  const Error cause(ErrorKind::kPeer, concat(name, " ", why));
  const auto groups = world_.groups;
  for (const auto& [id, group] : groups) {
    if (group->index_of(peer.rank()) != kNotAMember) fail_group(*group, cause, true);
  }
}

/// The operation that waits for the peer, or else the last one that this rank began with it.
std::string Failures::activity_with(const Peer& peer) const {
  std::shared_ptr<Operation> first;
  for (const auto& operation : operations_in_flight()) {
    const std::uint32_t index = operation->group().index_of(peer.rank());
    if (operation->is_point_to_point() || index == kNotAMember || !operation->needs(index))
      continue;
    if (!first || operation->order() < first->order()) first = operation;
  }
  if (first) {
    return concat("; ", first->title(), " (operation ", first->sequence(), ") waited for it");
  }
  std::string last;
  std::uint64_t order = 0;
  for (const auto& [id, group] : world_.groups) {
    if (group->index_of(peer.rank()) == kNotAMember || group->last_order < order) continue;
    order = group->last_order;
    last = group->last_title();
  }
  return last.empty() ? "; no operation had begun" : concat("; the last operation was ", last);
}

/// A rank that has left owes nothing to operations that it has finished; the others fail. The other
/// members of a collective are told, because they may wait for this rank only.
void Failures::fail_operations_with(const Peer& peer) {
  const Error cause(ErrorKind::kPeer, concat(world_.name_of(peer.rank()), " ", peer.why_gone()));
  std::vector<std::shared_ptr<Operation>> failed;
  const auto groups = world_.groups;
  for (const auto& [id, group] : groups) {
    const std::uint32_t index = group->index_of(peer.rank());
    if (index == kNotAMember) continue;
    if (group->watcher != nullptr) group->watcher->troubled();
    std::optional<std::uint64_t> first;
    for (const auto& [sequence, operation] : group->running) {
      if (operation->needs(index)) first = std::min(first.value_or(sequence), sequence);
    }
    if (first) fail_group(*group, cause, true, *first);
    for (const auto& operation : group->receives) {
      if (operation->request().root == index) failed.push_back(operation);
    }
    for (const auto& [key, operation] : group->sending) {
      if (key.first == index) failed.push_back(operation);
    }
    for (const auto& [key, operation] : group->receiving) {
      if (key.first == index) failed.push_back(operation);
    }
  }
  for (const auto& operation : failed) operations_.fail(operation, cause);
}

void Failures::begin_mismatch(Group& group, std::uint64_t sequence) {
  if (sequence >= group.failed_from || group.mismatch) return;
  group.mismatch = Mismatch{sequence, {}, world_.now + kCollectDescriptions};
  if (const auto passed = group.passed(sequence)) tell_mismatch(group, *passed);
}

void Failures::tell_mismatch(Group& group, const std::string& passed) {
  group.mismatch->passed[group.rank()] = passed;
  world_.broadcast(group, world_.frame_for(FrameKind::kDescribe, group, group.mismatch->sequence),
                   bytes_of(passed));
  if (group.mismatch->passed.size() == group.size()) end_mismatch(group);
}

void Failures::on_describe(Peer& peer, Group& group, const Frame& frame,
                           std::span<const std::byte> payload) {
  begin_mismatch(group, frame.sequence);
  if (!group.mismatch || group.mismatch->sequence != frame.sequence) return;
  group.mismatch->passed[group.index_of(peer.rank())] = text_of(payload);
  if (group.mismatch->passed.size() == group.size()) end_mismatch(group);
}

void Failures::watch_mismatches() {
  const auto groups = world_.groups;
  for (const auto& [id, group] : groups) {
    if (group->mismatch && group->failed_from > 0 && world_.now >= group->mismatch->deadline) {
      end_mismatch(*group);
    }
  }
}

void Failures::end_mismatch(Group& group) {
  std::ostringstream table;
  table << "the ranks of group '" << group.name() << "' disagree about operation "
        << group.mismatch->sequence << " (counted from 0):";
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    const auto passed = group.mismatch->passed.find(rank);
    table << "\n  rank " << rank << ": "
          << (passed == group.mismatch->passed.end() ? "nothing yet" : passed->second);
  }
  table << "\nall ranks must pass the same collective, dtype, sizes, operation and root, in the "
           "same order";
  fail_group(group, Error(ErrorKind::kMismatch, table.str()), true);
}

void Failures::fail_group(Group& group, const Error& cause, bool tell, std::uint64_t first) {
  if (group.closed || (group.failure && first >= group.failed_from)) return;
  if (tell) {
    world_.note(FlightEvent::Kind::kFailed, kNoRank, &group, first, cause.what());
    world_.flight.alarm();
  }
  group.failed_from = first;
  group.failure.emplace(cause.kind(), concat(cause.what(), " (group '", group.name(),
                                             "' has failed; create a new one)"));
  if (tell) {
    for (const std::uint32_t rank : group.ranks()) {
      if (rank != world_.identity.rank) send_abort(*world_.peers[rank], group.id(), cause, first);
    }
  }
  std::vector<std::shared_ptr<Operation>> failed(group.receives.begin(), group.receives.end());
  for (const auto& [sequence, operation] : group.running) {
    if (sequence >= first) failed.push_back(operation);
  }
  for (const auto& [key, operation] : group.sending) failed.push_back(operation);
  for (const auto& [key, operation] : group.receiving) failed.push_back(operation);
  for (const auto& operation : failed) operations_.fail(operation, cause);
  drop_undelivered(group, first);
  if (group.watcher != nullptr) group.watcher->troubled();
}

void Failures::fail_everything(const Error& cause) {
  const auto groups = world_.groups;
  for (const auto& [id, group] : groups) fail_group(*group, cause, true);
}

void Failures::drop_undelivered(Group& group, std::uint64_t first) {
  const auto release = [this](const Early& early) {
    const bool in_pool =
        early.frame.kind == FrameKind::kEager && (early.frame.flags & kAskedFor) == 0;
    if (in_pool)
      world_.release_eager(*world_.peers[early.peer], sizeof(Frame) + early.payload.size());
  };
  const auto concerned = [first](const auto& entry) { return entry.first.second >= first; };
  for (const auto& [sequence, list] : group.early) {
    if (sequence >= first) std::ranges::for_each(list, release);
  }
  std::ranges::for_each(group.messages, release);
  group.messages.clear();
  std::erase_if(group.early, [first](const auto& entry) { return entry.first >= first; });
  std::erase_if(group.uncredited, concerned);
  std::erase_if(group.unpooled, concerned);
  std::erase_if(group.requested, concerned);
}

void Failures::send_abort(Peer& peer, std::uint64_t group, const Error& cause,
                          std::uint64_t first) {
  Frame frame;
  frame.kind = FrameKind::kAbort;
  frame.group = group;
  frame.sequence = first;
  std::string text(1, static_cast<char>(cause.kind()));
  text += cause.what();
  peer.send_control(frame, bytes_of(text));
}

void Failures::on_abort(const Peer& peer, Group& group, const Frame& frame,
                        std::span<const std::byte> payload) {
  if (payload.empty()) return;
  const auto kind = static_cast<ErrorKind>(payload[0]);
  const bool known = kind <= ErrorKind::kInternal;
  if (!group.closed && (!group.failure || frame.sequence < group.failed_from)) {
    world_.note(FlightEvent::Kind::kAborted, peer.rank(), &group, frame.sequence,
                text_of(payload.subspan(1)));
  }
  // Told to the others, so that they do not take a member that fails now and leaves for the cause.
  fail_group(group, Error(known ? kind : ErrorKind::kAborted, text_of(payload.subspan(1))), true,
             frame.sequence);
}

}  // namespace slipstream
