#include "transport/tcp/frame_writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "base/overlap.h"
#include "slipstream/error.h"

namespace slipstream {

bool FrameWriter::send(int fd, const Frame& frame, std::span<const std::byte> payload) {
  SLIPSTREAM_ASSERT(frame.length == payload.size(), frame.length, " and ", payload.size());
  if (!ready()) return false;
  frame_ = frame;
  payload_ = payload;
  written_ = 0;
  written_ = write(fd);
  if (written_ == held_bytes()) return true;
  blocked_ = true;
  holding_ = written_ > 0;
  return holding_;
}

bool FrameWriter::resume(int fd) {
  if (!blocked_ || error_ != 0) return false;
  if (holding_) {
    const std::size_t wrote = write(fd);
    written_ += wrote;
    if (wrote == 0 || written_ < held_bytes()) return false;
    holding_ = false;
    owned_ = {};
  }
  blocked_ = false;
  return true;
}

void FrameWriter::forget(std::span<const std::byte> memory) {
  if (!holding_ || !overlap(payload_, memory)) return;
  owned_.assign(payload_.begin(), payload_.end());
  payload_ = owned_;
}

std::size_t FrameWriter::write(int fd) {
  const auto header = std::as_bytes(std::span(&frame_, 1));
  std::array<iovec, 2> parts{};
  std::size_t count = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    if (!bytes.empty()) parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  if (written_ < header.size()) add(header.subspan(written_));
  add(written_ < header.size() ? payload_ : payload_.subspan(written_ - header.size()));

  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  while (true) {
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) error_ = errno;
    return 0;
  }
}

}  // namespace slipstream
