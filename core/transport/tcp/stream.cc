#include "transport/tcp/stream.h"

#include <sys/epoll.h>

#include <utility>

#include "base/address.h"
#include "slipstream/error.h"

namespace slipstream {

Stream::Stream(Poller& poller, const std::string& peer, Connection connection,
               const FrameReader::Source& source, std::vector<StreamId>& lost)
    : poller_(poller),
      socket_(std::move(connection.socket)),
      channel_(std::move(connection.channel)),
      source_(source),
      name_(concat("stream ", source.stream, " of ", peer, " (", peer_address(socket_.get()).text(),
                   ")")),
      lost_(lost),
      writer_(*channel_),
      reader_(source) {
  // The socket is writable, so on_events() is called soon, and reads what TLS has read ahead.
  poller_.watch(socket_.get(), *this);
}

bool Stream::send(const Frame& frame, std::span<const std::byte> payload) {
  if (!socket_) return false;
  const bool taken = writer_.send(frame, payload);
  // Only poll() may report the loss, after everything that the peer has sent was delivered.
  if (writer_.failed()) poller_.call_again(socket_.get());
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
  if ((events & EPOLLOUT) != 0) writer_.resume();
  if (writer_.failed()) peer_is_done_ = true;
  const auto progress = reader_.read(*channel_, peer_is_done_, sink);
  if (!socket_) return false;  // closed by the sink
  if (progress == FrameReader::Progress::kMore) return true;
  // A write has failed, and the earlier data were delivered. The end of the stream, for which
  // read() waits, may never come, as after a time-out of the network.
  if (progress == FrameReader::Progress::kEnded || writer_.failed()) {
    abandon(writer_.failed() ? concat("broke: ", channel_->send_failure()) : reader_.reason(),
            sink);
  }
  return false;
}

void Stream::abandon(const std::string& why, Sink& sink) {
  const std::string reason = concat(name_, " ", why);
  close();
  lost_.push_back({source_.peer, source_.stream});
  sink.stream_lost(source_.peer, source_.stream, reason);
}

}  // namespace slipstream
