#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace slipstream {

/// A non-blocking stream socket that listens under `name` in the abstract namespace: visible in
/// this network namespace only, absent from the file system, gone with its last descriptor.
Descriptor listen_abstract(const std::string& name);

/// What connect_abstract() came to: connected, or not, and then with errno. EAGAIN: the backlog of
/// the listener is full, try again; ECONNREFUSED: nobody listens under that name here.
struct AbstractConnection {
  Descriptor socket;
  int error = 0;
};
AbstractConnection connect_abstract(const std::string& name);

/// The next connection that waits on `listener`, non-blocking; an empty one when none does.
/// Throws Error(kInternal) when the process is out of descriptors or memory.
Descriptor accept_connection(const Descriptor& listener);

/// The process that made the other end of a Unix socket, as the kernel recorded it.
struct SocketOwner {
  pid_t pid = 0;
  uid_t uid = 0;
};
SocketOwner owner_of_other_end(const Descriptor& socket);

/// A short message and the descriptors that came with it.
struct Parcel {
  std::vector<std::byte> bytes;
  std::vector<Descriptor> descriptors;
};

/// Sends all of `bytes` with `descriptors` attached, or nothing and returns false when the socket
/// is full. Throws Error(kPeer) when the other end is gone. At most kMaxParcelDescriptors.
bool send_parcel(const Descriptor& socket, std::span<const std::byte> bytes,
                 std::span<const int> descriptors);
constexpr std::size_t kMaxParcelDescriptors = 4;

/// Receives what one send_parcel() sent, at most `max_bytes` of it; nothing while nothing is there.
/// Throws Error(kPeer) when the other end is gone or sends more descriptors than are allowed.
std::optional<Parcel> receive_parcel(const Descriptor& socket, std::size_t max_bytes);

/// Whether the other end of a socket that should be silent has closed it (or has broken the
/// silence, which is as good a reason not to go on). Never blocks.
bool other_end_is_gone(const Descriptor& socket) noexcept;

}  // namespace slipstream
