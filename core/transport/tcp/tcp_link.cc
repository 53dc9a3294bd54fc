#include "transport/tcp/tcp_link.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

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

std::string describe_connection(const Descriptor& socket) {
  const std::string interface = interface_of(local_address(socket.get()));
  return concat("tcp ", peer_address(socket.get()).text(),
                interface.empty() ? "" : concat(" (", interface, ")"));
}

}  // namespace

TcpLink::TcpLink(Poller& poller, std::uint32_t peer, const std::string& name,
                 std::vector<Descriptor> sockets, std::uint32_t max_payload_bytes)
    : description_(describe_connection(sockets.at(0))) {
  for (Descriptor& socket : sockets) {
    const bool control = streams_.empty();
    if (!control) {
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes,
                   sizeof kUnsentBytes);
    }
    streams_.push_back(std::make_unique<Stream>(
        poller, name, std::move(socket),
        FrameReader::Source{
            .peer = peer,
            .stream = static_cast<std::uint32_t>(streams_.size()),
            .max_payload_bytes = max_payload_bytes,
            .read_ahead_bytes = control ? kControlReadAhead : kBulkReadAhead,
        }));
  }
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

void TcpLink::close() noexcept {
  for (const auto& stream : streams_) stream->close();
}

}  // namespace slipstream
