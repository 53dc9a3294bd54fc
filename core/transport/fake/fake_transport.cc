#include "transport/fake/fake_transport.h"

#include <variant>

namespace slipstream {

FakeLink::FakeLink(FakeNetwork& network, std::uint32_t rank, std::uint32_t peer)
    : network_(network), rank_(rank), peer_(peer), alive_(network.options().num_streams, true) {}

std::uint32_t FakeLink::num_streams() const { return network_.options().num_streams; }

bool FakeLink::ready(std::uint32_t stream) const {
  return alive(stream) && network_.ready({rank_, peer_, stream});
}

bool FakeLink::send(std::uint32_t stream, const Frame& frame, std::span<const std::byte> payload) {
  return alive(stream) && network_.send({rank_, peer_, stream}, frame, payload);
}

void FakeLink::forget(std::span<const std::byte> memory) { network_.forget(rank_, peer_, memory); }

FakeTransport::FakeTransport(FakeNetwork& network, std::uint32_t rank, Bell bell)
    : network_(network), rank_(rank) {
  network_.attach(rank, bell);
}

bool FakeTransport::poll(Sink& sink) {
  bool any = false;
  const TimePoint now = Clock::now();
  while (!closed_) {
    const std::optional<FakeEvent> event = network_.take(rank_, now);
    if (!event) break;
    any = true;
    std::visit([&](const auto& what) { handle(what, sink); }, *event);
  }
  return any;
}

TimePoint FakeTransport::next_event() const {
  return closed_ ? TimePoint::max() : network_.next_event(rank_);
}

void FakeTransport::close() {
  if (closed_) return;
  closed_ = true;
  for (const auto& [peer, link] : links_) link->lose_all();
  network_.detach(rank_);
}

void FakeTransport::handle(const FakeConnected& connected, Sink& sink) {
  auto& link = links_[connected.peer];
  link = std::make_unique<FakeLink>(network_, rank_, connected.peer);
  sink.connected(connected.peer, *link);
}

void FakeTransport::handle(const FakeLost& lost, Sink& sink) {
  links_.at(lost.lane.from)->lose(lost.lane.stream);
  sink.stream_lost(lost.lane.from, lost.lane.stream, lost.reason);
}

void FakeTransport::handle(const FakeArrival& arrival, Sink& sink) {
  sink.arrived(arrival.lane.from, arrival.lane.stream, arrival.frame, arrival.payload());
}

void FakeTransport::handle(const FakeOffer& offer, Sink& sink) {
  std::byte* place = nullptr;
  if (!offer.begun && offer.frame.length > 0) place = sink.place(offer.lane.from, offer.frame);
  if (closed_) return;
  const auto arrival = network_.land(offer, place, Clock::now());
  if (arrival) handle(*arrival, sink);
}

}  // namespace slipstream
