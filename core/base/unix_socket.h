#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace slipstream {

/// A non-blocking stream socket that listens under `name` in the abstract namespace. The name is
/// visible in this network namespace only, is not in the file system, and disappears with the last
/// descriptor.
Descriptor listen_abstract(const std::string& name);

/// The result of connect_abstract(): a socket, or an errno. EAGAIN means that the listener's
/// backlog is full, so try again; ECONNREFUSED means that nobody listens under that name here.
struct AbstractConnection {
  Descriptor socket;
  int error = 0;
};
AbstractConnection connect_abstract(const std::string& name);

/// The next waiting connection of `listener`, non-blocking; empty if there is none. Throws
/// Error(kInternal) if the process has no descriptors or memory left.
Descriptor accept_connection(const Descriptor& listener);

/// The process that made the other end of a Unix socket, as recorded by the kernel.
struct SocketOwner {
  pid_t pid = 0;
  uid_t uid = 0;
};
SocketOwner owner_of_other_end(const Descriptor& socket);

/// A short message with the descriptors that were attached to it.
struct Parcel {
  std::vector<std::byte> bytes;
  std::vector<Descriptor> descriptors;
};

/// Sends all of `bytes` with up to kMaxParcelDescriptors descriptors attached. Returns false, and
/// sends nothing, if the socket is full. Throws Error(kPeer) if the other end is gone.
bool send_parcel(const Descriptor& socket, std::span<const std::byte> bytes,
                 std::span<const int> descriptors);
constexpr std::size_t kMaxParcelDescriptors = 4;

/// Receives what one send_parcel() sent, at most `max_bytes` of it; nothing if no parcel has
/// arrived. Throws Error(kPeer) if the other end is gone or has sent too many descriptors.
std::optional<Parcel> receive_parcel(const Descriptor& socket, std::size_t max_bytes);

/// Whether the other end of a socket on which nothing should arrive has closed it, or has sent
/// something all the same, which is treated alike. Never blocks.
bool other_end_is_gone(const Descriptor& socket) noexcept;

}  // namespace slipstream
