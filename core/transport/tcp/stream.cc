#include "transport/tcp/stream.h"

#include <sys/epoll.h>

#include <cstring>
#include <utility>

#include "base/address.h"
#include "slipstream/error.h"

namespace slipstream {

Stream::Stream(Poller& poller, const std::string& peer, Descriptor socket,
               const FrameReader::Source& source, std::vector<StreamId>& lost)
    : poller_(poller),
      socket_(std::move(socket)),
      source_(source),
      name_(concat("stream ", source.stream, " of ", peer, " (", peer_address(socket_.get()).text(),
                   ")")),
      lost_(lost),
      reader_(source) {
  poller_.watch(socket_.get(), *this);
}

bool Stream::send(const Frame& frame, std::span<const std::byte> payload) {
  if (!socket_) return false;
  const bool taken = writer_.send(socket_.get(), frame, payload);
  // Only poll() may report the loss, after everything that the peer has sent was delivered.
  if (writer_.error() != 0) poller_.call_again(socket_.get());
  return taken;
}

void Stream::forget(std::span<const std::byte> memory) {
  writer_.forget(memory);
  reader_.forget(memory);
}

void Stream::close() noexcept {
  if (!socket_) return;
  reader_.stop();
  poller_.unwatch(socket_.get());
  socket_.reset();
}

bool Stream::on_events(std::uint32_t events, Sink& sink) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) peer_is_done_ = true;
  if ((events & EPOLLOUT) != 0) writer_.resume(socket_.get());
  if (writer_.error() != 0) peer_is_done_ = true;
  const auto progress = reader_.read(socket_.get(), peer_is_done_, sink);
  if (!socket_) return false;  // closed by the sink
  if (progress == FrameReader::Progress::kMore) return true;
  // A write has failed, and the earlier data were delivered. The end of the stream, for which
  // read() waits, may never come, as after a time-out of the network.
  if (progress == FrameReader::Progress::kEnded || writer_.error() != 0) {
    abandon(writer_.error() != 0 ? write_failure() : reader_.reason(), sink);
  }
  return false;
}

void Stream::abandon(const std::string& why, Sink& sink) {
  const std::string reason = concat(name_, " ", why);
  close();
  lost_.push_back({source_.peer, source_.stream});
  sink.stream_lost(source_.peer, source_.stream, reason);
}

std::string Stream::write_failure() const {
  return concat("broke: sendmsg failed: ", std::strerror(writer_.error()));
}

}  // namespace slipstream
