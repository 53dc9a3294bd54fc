#include "base/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "slipstream/error.h"

namespace slipstream {
namespace {

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};

// sun_path begins with a null byte and is not terminated; the length gives the end of the name.
std::optional<AbstractAddress> abstract_address(const std::string& name) {
  AbstractAddress result;
  result.address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof result.address.sun_path) return std::nullopt;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

Descriptor make_socket() {
  return {::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket(AF_UNIX)"};
}

// Room for the descriptors of one parcel, with the alignment that the kernel requires.
struct alignas(cmsghdr) Ancillary {
  std::array<char, CMSG_SPACE(kMaxParcelDescriptors * sizeof(int))> bytes{};
};

// Takes ownership of all descriptors before anything can fail, so that none leaks.
std::vector<Descriptor> take_descriptors(msghdr& message) {
  std::vector<Descriptor> taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    taken.reserve(taken.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      taken.emplace_back(fd, "recvmsg(SCM_RIGHTS)");
    }
  }
  return taken;
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Descriptor listen_abstract(const std::string& name) {
  const auto target = abstract_address(name);
  SLIPSTREAM_ASSERT(target.has_value(), "abstract socket name '", name, "'");
  Descriptor socket = make_socket();
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&target->address), target->length) !=
          0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    fail(ErrorKind::kInternal, "cannot listen on the abstract Unix socket '", name,
         "': ", std::strerror(errno));
  }
  return socket;
}

AbstractConnection connect_abstract(const std::string& name) {
  const auto target = abstract_address(name);
  if (!target) return {{}, EINVAL};
  Descriptor socket = make_socket();
  int result = 0;
  do {
    result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&target->address),
                       target->length);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return {{}, errno};
  return {std::move(socket), 0};
}

Descriptor accept_connection(const Descriptor& listener) {
  const int fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0 && (would_block(errno) || errno == ECONNABORTED)) return {};
  return {fd, "accept on the Unix socket of this rank"};
}

SocketOwner owner_of_other_end(const Descriptor& socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    fail(ErrorKind::kInternal, "getsockopt(SO_PEERCRED) failed: ", std::strerror(errno));
  }
  return {credentials.pid, credentials.uid};
}

bool send_parcel(const Descriptor& socket, std::span<const std::byte> bytes,
                 std::span<const int> descriptors) {
  SLIPSTREAM_ASSERT(descriptors.size() <= kMaxParcelDescriptors, descriptors.size());
  Ancillary ancillary;
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  const ssize_t sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && would_block(errno)) return false;
  if (sent < 0)
    fail(ErrorKind::kPeer, "cannot be written to: sendmsg failed: ", std::strerror(errno));
  // The kernel accepts such a short message completely or not at all.
  SLIPSTREAM_ASSERT(static_cast<std::size_t>(sent) == bytes.size(), sent, " of ", bytes.size());
  return true;
}

std::optional<Parcel> receive_parcel(const Descriptor& socket, std::size_t max_bytes) {
  Parcel parcel;
  parcel.bytes.resize(max_bytes);
  Ancillary ancillary;
  iovec part{parcel.bytes.data(), max_bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes.data();
  message.msg_controllen = ancillary.bytes.size();
  const ssize_t received = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0 && would_block(errno)) return std::nullopt;
  if (received < 0)
    fail(ErrorKind::kPeer, "cannot be read from: recvmsg failed: ", std::strerror(errno));
  parcel.descriptors = take_descriptors(message);
  if (received == 0) fail(ErrorKind::kPeer, "closed the connection");
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    fail(ErrorKind::kPeer, "sent more than ", kMaxParcelDescriptors,
         " descriptors, or this process may open no more of them; if so, raise ulimit -n");
  }
  parcel.bytes.resize(static_cast<std::size_t>(received));
  return parcel;
}

bool other_end_is_gone(const Descriptor& socket) noexcept {
  std::byte unexpected{};
  const ssize_t received = ::recv(socket.get(), &unexpected, sizeof unexpected, MSG_DONTWAIT);
  return received >= 0 || !would_block(errno);
}

}  // namespace slipstream
