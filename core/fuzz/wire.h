#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/descriptor.h"
#include "fuzz/input.h"
#include "transport/handshake.h"

namespace slipstream::fuzz {

/// Two connected sockets, one of which a parser reads.
struct Wire {
  Wire() {
    std::array<int, 2> fds{};
    expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
    near = Descriptor(fds[0], "socketpair");
    far = Descriptor(fds[1], "socketpair");
  }

  /// Writes to the parser's socket what fits.
  void write(std::span<const std::byte> bytes) const {
    if (far) ::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  /// Reads what the parser has written.
  [[nodiscard]] std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(4096);
    const ssize_t count = ::recv(far.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return bytes;
  }

  Descriptor near;
  Descriptor far;
};

/// Somebody between two ends who passes bytes on, and changes, inserts or drops some of them.
class Meddler {
 public:
  explicit Meddler(Input& input) : input_(input) {}

  /// Moves the bytes that have arrived in one direction. Returns whether there were any.
  bool pass(const Wire& from, const Wire& to, bool& changed) {
    std::vector<std::byte> bytes = from.read();
    if (bytes.empty()) return false;
    const std::uint32_t choice = input_.below(8);
    if (choice == 1) {
      const std::size_t at = input_.number<std::uint16_t>() % bytes.size();
      const auto with = std::byte{input_.number<std::uint8_t>()};
      bytes[at] ^= with;
      changed = changed || with != std::byte{0};
    } else if (choice == 2) {
      bytes.resize(input_.number<std::uint16_t>() % (bytes.size() + 1));
      changed = true;
    } else if (choice == 3) {
      bytes = input_.bytes(input_.number<std::uint8_t>());
      changed = true;
    }
    to.write(bytes);
    return true;
  }

 private:
  Input& input_;
};

inline Identity identity_of(std::uint32_t rank) {
  Identity identity{.rank = rank, .world_size = 8, .epoch = 3};
  identity.key.fill(std::byte{9});
  return identity;
}

}  // namespace slipstream::fuzz
