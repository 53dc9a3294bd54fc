#include "transport/tcp/dialler.h"

#include <algorithm>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {
/// Time for one of several endpoints to answer; a single endpoint may use all the time.
constexpr Clock::duration kEndpointPatience = 3s;
constexpr Clock::duration kMaxPause = 500ms;
}  // namespace

Dialler::Dialler(Poller& poller, const Identity& self, Plan plan)
    : poller_(poller),
      self_(self),
      plan_(std::move(plan)),
      deadline_(Clock::now() + plan_.deadline) {
  for (const std::string& text : plan_.endpoints) {
    Endpoint endpoint;
    endpoint.text = text;
    endpoint.address = SocketAddress::parse(text);
    if (!endpoint.address || endpoint.address->port() == 0) {
      endpoint.failure = "is not an address with a port";
      endpoint.hopeless = true;
    } else if (endpoint.address->is_link_local() && endpoint.address->scope() == 0) {
      endpoint.address = endpoint.address->with_scope(plan_.link_local_scope);
    }
    endpoints_.push_back(std::move(endpoint));
  }
  while (endpoint_ + 1 < endpoints_.size() && endpoints_[endpoint_].hopeless) ++endpoint_;
  lines_.resize(plan_.num_streams);
}

Dialler::State Dialler::advance(TimePoint now) {
  if (state_ != State::kDialling) return state_;
  while (!hopeless() && advance_line(0, now)) {
  }
  if (lines_[0].done()) {
    for (std::size_t stream = 1; stream < lines_.size(); ++stream) advance_line(stream, now);
  }
  if (std::all_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.done(); })) {
    state_ = State::kDone;
  } else if (hopeless() || now >= deadline_) {
    state_ = State::kFailed;
    lines_.clear();
  }
  return state_;
}

/// Returns whether another call may make progress at once.
bool Dialler::advance_line(std::size_t stream, TimePoint now) {
  Line& line = lines_[stream];
  if (line.done()) return false;
  if (line.attempt == nullptr) {
    if (now < line.retry || now >= deadline_) return false;
    start(stream, now);
  }
  switch (line.attempt->check(now)) {
    case Attempt::State::kPending:
      return false;
    case Attempt::State::kDone:
      line.connection = line.attempt->take_connection();
      line.attempt.reset();
      return false;
    default:
      take_failure(stream, now);
      return true;
  }
}

void Dialler::start(std::size_t stream, TimePoint now) {
  const bool searching = stream == 0 && endpoints_.size() > 1;
  const TimePoint until = searching ? std::min(deadline_, now + kEndpointPatience) : deadline_;
  const Handshake::Call call{.purpose = plan_.purpose,
                             .peer = plan_.peer,
                             .stream = static_cast<std::uint16_t>(stream),
                             .num_streams = plan_.num_streams};
  lines_[stream].attempt =
      std::make_unique<Attempt>(poller_, self_, *endpoints_[endpoint_].address, call, until);
}

void Dialler::take_failure(std::size_t stream, TimePoint now) {
  Line& line = lines_[stream];
  Endpoint& endpoint = endpoints_[endpoint_];
  endpoint.failure = line.attempt->reason();
  endpoint.hopeless = line.attempt->hopeless();
  line.attempt.reset();
  if (stream == 0) {
    choose_next_endpoint(now);
  } else {
    line.retry = now + back_off();
  }
}

void Dialler::choose_next_endpoint(TimePoint now) {
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    if (++endpoint_ == endpoints_.size()) {
      endpoint_ = 0;
      lines_[0].retry = now + back_off();
    }
    if (!endpoints_[endpoint_].hopeless) return;
  }
}

/// Before the peer is found: no endpoint is left to try. Afterwards: the peer refuses us.
bool Dialler::hopeless() const {
  if (lines_[0].done()) return endpoints_[endpoint_].hopeless;
  return std::all_of(endpoints_.begin(), endpoints_.end(),
                     [](const Endpoint& endpoint) { return endpoint.hopeless; });
}

Clock::duration Dialler::back_off() noexcept {
  return std::exchange(pause_, std::min(2 * pause_, kMaxPause));
}

TimePoint Dialler::next_event() const {
  TimePoint next = deadline_;
  const std::size_t active = lines_[0].done() ? lines_.size() : 1;
  for (std::size_t stream = 0; stream < active; ++stream) {
    const Line& line = lines_[stream];
    if (line.done()) continue;
    next = std::min(next, line.attempt != nullptr ? line.attempt->deadline() : line.retry);
  }
  return next;
}

std::vector<Connection> Dialler::take_connections() {
  std::vector<Connection> connections;
  for (Line& line : lines_) connections.push_back(std::move(line.connection));
  return connections;
}

std::string Dialler::reason() const {
  std::string reason =
      concat(plan_.name, " cannot be reached (tried for at most ", seconds(plan_.deadline), " s)");
  for (const Endpoint& endpoint : endpoints_) {
    if (!endpoint.failure.empty()) reason += concat("; ", endpoint.text, " ", endpoint.failure);
  }
  return endpoints_.empty() ? reason + "; it has published no address" : reason;
}

}  // namespace slipstream
