#include "transport/tcp/reconnector.h"

#include <algorithm>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr Clock::duration kFirstPause = 5ms, kLongestPause = 2s;
/// Time for an endpoint to answer; then the next one is tried.
constexpr Clock::duration kAttemptPatience = 2s;
/// The dialling rank usually comes first; if it does not, it may not know of the loss.
constexpr Clock::duration kKnockAfter = 20ms;
/// Time for which nobody must listen at a peer's addresses until its process counts as gone. A host
/// that is reachable answers each attempt at once.
constexpr Clock::duration kUnheardFor = 100ms;

}  // namespace

void Reconnector::know(std::uint32_t peer, const std::vector<std::string>& endpoints,
                       std::uint32_t link_local_scope) {
  for (const std::string& text : endpoints) {
    const auto address = SocketAddress::parse(text);
    if (!address || address->port() == 0) continue;
    const bool needs_scope = address->is_link_local() && address->scope() == 0;
    peers_[peer].endpoints.push_back(needs_scope ? address->with_scope(link_local_scope)
                                                 : *address);
  }
}

void Reconnector::begin(StreamId stream, std::uint64_t tag, std::uint32_t num_streams,
                        TimePoint now) {
  const Clock::duration pause = stream.peer > self_.rank ? kKnockAfter : kFirstPause;
  losses_[stream] = Loss{.tag = tag,
                         .num_streams = static_cast<std::uint16_t>(num_streams),
                         .next = now + pause,
                         .pause = pause};
}

void Reconnector::give_up(std::uint32_t peer) {
  std::erase_if(losses_, [peer](const auto& entry) { return entry.first.peer == peer; });
}

std::vector<Reconnector::Opened> Reconnector::advance(TimePoint now) {
  std::vector<Opened> opened;
  for (auto& [stream, loss] : losses_) {
    Peer& peer = peers_[stream.peer];
    if (loss.attempt == nullptr && now >= loss.next && !peer.endpoints.empty()) {
      start(stream, loss, now);
    }
    if (loss.attempt == nullptr) continue;
    const Attempt::State state = loss.attempt->check(now);
    if (state == Attempt::State::kPending) continue;
    if (state == Attempt::State::kFailed) {
      take_failure(peer, loss, now);
      continue;
    }
    peer.unheard_since = TimePoint::max();
    if (stream.peer < self_.rank) {
      opened.push_back({stream, loss.attempt->take_connection()});
    }
    loss.attempt.reset();  // closes the connection of a knock
    loss.next = now + kLongestPause;
  }
  for (const Opened& each : opened) end(each.stream);
  return opened;
}

void Reconnector::start(StreamId stream, Loss& loss, TimePoint now) {
  const auto& endpoints = peers_[stream.peer].endpoints;
  const Handshake::Call call{.purpose = purpose_,
                             .peer = stream.peer,
                             .stream = static_cast<std::uint16_t>(stream.stream),
                             .num_streams = loss.num_streams,
                             .renews = loss.tag};
  const SocketAddress& endpoint = endpoints[loss.tried++ % endpoints.size()];
  loss.attempt = std::make_unique<Attempt>(poller_, self_, endpoint, call, now + kAttemptPatience);
}

void Reconnector::take_failure(Peer& peer, Loss& loss, TimePoint now) {
  if (loss.attempt->unheard()) {
    peer.unheard_since = std::min(peer.unheard_since, now);
  } else if (loss.attempt->refused()) {
    peer.refusal = loss.attempt->reason();
  }
  loss.attempt.reset();
  loss.next = now + loss.pause;
  loss.pause = std::min(2 * loss.pause, kLongestPause);
}

std::optional<std::string> Reconnector::hopeless(std::uint32_t peer, TimePoint now) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return std::nullopt;
  if (!found->second.refusal.empty()) return found->second.refusal;
  const TimePoint since = found->second.unheard_since;
  if (since == TimePoint::max() || now - since < kUnheardFor) return std::nullopt;
  return "nobody listens at its address any more";
}

TimePoint Reconnector::next_event() const {
  TimePoint next = TimePoint::max();
  for (const auto& [stream, loss] : losses_) {
    next = std::min(next, loss.attempt != nullptr ? loss.attempt->deadline() : loss.next);
  }
  return next;
}

}  // namespace slipstream
