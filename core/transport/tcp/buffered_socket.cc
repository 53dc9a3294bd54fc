#include "transport/tcp/buffered_socket.h"

#include <openssl/bio.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "slipstream/error.h"

namespace slipstream {
namespace {

BufferedSocket& socket_of(BIO* bio) { return *static_cast<BufferedSocket*>(::BIO_get_data(bio)); }

int read_bio(BIO* bio, char* into, int size) {
  ::BIO_clear_retry_flags(bio);
  const auto bytes = std::as_writable_bytes(std::span(into, static_cast<std::size_t>(size)));
  const std::size_t count = socket_of(bio).read(bytes);
  if (count > 0) return static_cast<int>(count);
  ::BIO_set_retry_read(bio);
  return -1;
}

int write_bio(BIO* bio, const char* from, int size) {
  ::BIO_clear_retry_flags(bio);
  socket_of(bio).write(std::as_bytes(std::span(from, static_cast<std::size_t>(size))));
  return size;
}

long control_bio(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;  // flush() is called for several records together
}

BIO_METHOD* make_method() {
  BIO_METHOD* const method =
      ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "slipstream socket");
  if (method == nullptr) fail(ErrorKind::kInternal, "BIO_meth_new of OpenSSL failed");
  ::BIO_meth_set_read(method, read_bio);
  ::BIO_meth_set_write(method, write_bio);
  ::BIO_meth_set_ctrl(method, control_bio);
  return method;
}

}  // namespace

std::size_t BufferedSocket::read(std::span<std::byte> into) {
  while (!ended_ && read_failure_.empty()) {
    const ssize_t count = ::recv(socket_, into.data(), into.size(), MSG_DONTWAIT);
    if (count > 0) {
      received_ += static_cast<std::size_t>(count);
      return static_cast<std::size_t>(count);
    }
    if (count == 0) {
      ended_ = true;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return 0;
    } else if (errno != EINTR) {
      read_failure_ = concat("recv failed: ", std::strerror(errno));
    }
  }
  return 0;
}

void BufferedSocket::write(std::span<const std::byte> bytes) {
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
}

void BufferedSocket::flush() {
  while (held() > 0 && write_failure_.empty()) {
    const ssize_t count =
        ::send(socket_, outgoing_.data() + sent_, held(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      write_failure_ = concat("send failed: ", std::strerror(errno));
    }
  }
  outgoing_.clear();
  sent_ = 0;
}

bio_st* make_bio(BufferedSocket& socket) {
  static BIO_METHOD* const method = make_method();  // never freed: other threads may still use it
  BIO* const bio = ::BIO_new(method);
  if (bio == nullptr) fail(ErrorKind::kInternal, "BIO_new of OpenSSL failed");
  ::BIO_set_data(bio, &socket);
  ::BIO_set_init(bio, 1);
  return bio;
}

}  // namespace slipstream
