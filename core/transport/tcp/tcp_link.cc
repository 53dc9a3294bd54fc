#include "transport/tcp/tcp_link.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/address.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

/// Bytes that the kernel may keep unsent on a bulk stream. The limit makes priorities effective,
/// because data in the kernel cannot be overtaken. The socket counts as writable once half of it is
/// free.
constexpr int kUnsentBytes = 128 * 1024;

// Control frames are small and many, so a batch of them is parsed from one read. Payloads of the
// other streams are large, and the part that is read ahead must be copied.
constexpr std::size_t kControlReadAhead = std::size_t{32} * 1024;
constexpr std::size_t kBulkReadAhead = std::size_t{4} * 1024;

std::string describe_connection(const Descriptor& socket, bool tls) {
  const std::string interface = interface_of(local_address(socket.get()));
  return concat("tcp ", peer_address(socket.get()).text(),
                interface.empty() ? "" : concat(" (", interface, ")"), tls ? " with TLS" : "");
}

}  // namespace

TcpLink::TcpLink(Poller& poller, Options options, std::vector<Connection> connections,
                 std::vector<StreamId>& lost)
    : poller_(poller),
      options_(std::move(options)),
      description_(describe_connection(connections.at(0).socket, options_.tls)),
      lost_(lost),
      reconnects_(options_.reconnects) {
  for (Connection& connection : connections) {
    tags_.push_back(connection.tag);
    streams_.push_back(make_stream(num_streams(), std::move(connection)));
  }
}

std::unique_ptr<Stream> TcpLink::make_stream(std::uint32_t number, Connection connection) {
  const bool control = number == 0;
  if (!control) {
    ::setsockopt(connection.socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes,
                 sizeof kUnsentBytes);
  }
  const FrameReader::Source source{
      .peer = options_.peer,
      .stream = number,
      .max_payload_bytes = options_.max_payload_bytes,
      .read_ahead_bytes = control ? kControlReadAhead : kBulkReadAhead,
  };
  return std::make_unique<Stream>(poller_, options_.name, std::move(connection), source, lost_);
}

void TcpLink::reopen(std::uint32_t stream, Connection connection) {
  tags_[stream] = connection.tag;
  streams_[stream] = make_stream(stream, std::move(connection));
}

void TcpLink::abandon(std::uint32_t stream, const std::string& why, Sink& sink) {
  streams_[stream]->abandon(why, sink);
}

bool TcpLink::any_alive() const {
  return std::ranges::any_of(streams_, [](const auto& stream) { return stream->alive(); });
}

std::uint32_t TcpLink::num_streams() const { return static_cast<std::uint32_t>(streams_.size()); }

bool TcpLink::alive(std::uint32_t stream) const { return streams_[stream]->alive(); }

bool TcpLink::ready(std::uint32_t stream) const { return streams_[stream]->ready(); }

bool TcpLink::send(std::uint32_t stream, const Frame& frame, std::span<const std::byte> payload) {
  return streams_[stream]->send(frame, payload);
}

void TcpLink::forget(std::span<const std::byte> memory) {
  for (const auto& stream : streams_) stream->forget(memory);
}

void TcpLink::give_up() {
  reconnects_ = false;
  close();
}

void TcpLink::close() noexcept {
  for (const auto& stream : streams_) stream->close();
}

}  // namespace slipstream
