#include "transport/shm/shm_link.h"

#include <utility>

#include "slipstream/error.h"

namespace slipstream {

ShmLink::Shared::Shared(ShmConnection from)
    : connection(std::move(from)),
      producers{RingProducer(connection.channel.outgoing()[Channel::kControl]),
                RingProducer(connection.channel.outgoing()[Channel::kBulk])},
      consumers{RingConsumer(connection.channel.incoming()[Channel::kControl]),
                RingConsumer(connection.channel.incoming()[Channel::kBulk])} {}

ShmLink::ShmLink(std::uint32_t peer, ShmConnection connection)
    : peer_(peer),
      pid_(connection.process.pid),
      shared_(std::make_unique<Shared>(std::move(connection))) {}

bool ShmLink::alive(std::uint32_t stream) const {
  return shared_ != nullptr && stream < kNumStreams;
}

bool ShmLink::ready(std::uint32_t stream) const {
  return alive(stream) && shared_->producers[stream].ready();
}

bool ShmLink::send(std::uint32_t stream, const Frame& frame, std::span<const std::byte> payload) {
  if (!alive(stream)) return false;
  RingProducer& producer = shared_->producers[stream];
  SLIPSTREAM_ASSERT(payload.size() <= producer.capacity_bytes(), "stream ", stream, " takes ",
                    producer.capacity_bytes(), " bytes in a frame, got ", payload.size());
  SLIPSTREAM_ASSERT(frame.length == payload.size(), frame.length, " and ", payload.size());
  if (!producer.push(frame, payload)) return false;
  shared_->connection.bell.ring();
  return true;
}

std::size_t ShmLink::receive(std::uint32_t stream, std::size_t max_frames, Sink& sink) {
  RingConsumer& consumer = shared_->consumers[stream];
  RingConsumer::Item item;
  std::size_t received = 0;
  while (received < max_frames && consumer.front(item)) {
    consumer.next();
    ++received;
    sink.arrived(peer_, stream, item.frame, item.payload);
  }
  if (received > 0 && consumer.free()) shared_->connection.bell.ring();
  return received;
}

void ShmLink::lose(const std::string& reason, Sink& sink) {
  for (std::uint32_t stream = 0; stream < kNumStreams; ++stream) {
    // A dead process can have left at most one ring of frames; for a live process we do not wait.
    receive(stream, shared_->connection.channel.incoming()[stream].num_slots, sink);
  }
  shared_.reset();
  for (std::uint32_t stream = 0; stream < kNumStreams; ++stream) {
    sink.stream_lost(peer_, stream, reason);
  }
}

std::string ShmLink::fault() const {
  for (std::uint32_t stream = 0; stream < kNumStreams; ++stream) {
    for (const std::string* fault :
         {&shared_->producers[stream].fault(), &shared_->consumers[stream].fault()}) {
      if (!fault->empty()) return concat("broke the protocol of stream ", stream, ": ", *fault);
    }
  }
  return {};
}

bool ShmLink::peer_is_gone() const noexcept {
  return other_end_is_gone(shared_->connection.socket);
}

std::string ShmLink::peer_name() const {
  return concat("rank ", peer_, " (process ", pid_, " of this host)");
}

void ShmLink::close() noexcept {
  if (!shared_) return;
  const RemoteBell bell = std::move(shared_->connection.bell);
  shared_.reset();
  bell.ring();
}

}  // namespace slipstream
