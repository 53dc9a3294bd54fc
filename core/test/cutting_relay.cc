#include "test/cutting_relay.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/address.h"
#include "slipstream/error.h"
#include "test/tcp_world.h"

namespace slipstream::test {
namespace {

constexpr std::size_t kHeldBytes = 64 * 1024;

void make_ready(const Descriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
}

void reset(Descriptor& socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  socket.reset();
}

}  // namespace

CuttingRelay::CuttingRelay(std::uint64_t seed, double mean_bytes)
    : random_(seed), length_(1.0 / mean_bytes), thread_([this] { run(); }) {}

CuttingRelay::~CuttingRelay() {
  closing_ = true;
  thread_.join();
}

std::string CuttingRelay::way_to(const std::string& target) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket");
  const SocketAddress any = SocketAddress::parse("127.0.0.1:0").value();
  if (::bind(socket.get(), any.raw(), any.raw_size()) != 0 || ::listen(socket.get(), 256) != 0) {
    fail(ErrorKind::kInternal, "the relay cannot listen");
  }
  const std::string endpoint = local_address(socket.get()).text();
  const std::scoped_lock lock(mutex_);
  doors_.push_back({std::move(socket), target});
  return endpoint;
}

void CuttingRelay::cut_all() {
  const std::scoped_lock lock(mutex_);
  for (Pair& pair : pairs_) {
    if (pair.over) continue;
    for (Descriptor& end : pair.ends) reset(end);
    pair.over = true;
    ++num_cuts_;
  }
}

void CuttingRelay::run() {
  while (!closing_) {
    std::vector<pollfd> watched;
    {
      const std::scoped_lock lock(mutex_);
      std::erase_if(pairs_, [](const Pair& pair) { return pair.over; });
      for (const Door& door : doors_) watched.push_back({door.socket.get(), POLLIN, 0});
      for (const Pair& pair : pairs_) {
        for (int end = 0; end < 2; ++end) {
          const bool full = pair.held[end].size() >= kHeldBytes;
          const bool writes = !pair.held[1 - end].empty();
          const int events = (full ? 0 : POLLIN) | (writes ? POLLOUT : 0);
          watched.push_back({pair.ends[end].get(), static_cast<short>(events), 0});
        }
      }
    }
    ::poll(watched.data(), watched.size(), 20);
    const std::scoped_lock lock(mutex_);
    std::erase_if(doors_, [this](const Door& door) { return !admit(door); });
    for (Pair& pair : pairs_) {
      for (int from = 0; from < 2 && !pair.over; ++from) move(pair, from);
    }
  }
}

bool CuttingRelay::admit(const Door& door) {
  while (true) {
    const int fd = ::accept4(door.socket.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return true;
    Pair pair;
    pair.ends[0] = Descriptor(fd, "accept4");
    pair.budget = static_cast<std::size_t>(length_(random_)) + 1;
    try {
      pair.ends[1] = connect_to(door.target);
    } catch (const Error&) {
      return false;
    }
    for (const Descriptor& end : pair.ends) make_ready(end);
    pairs_.push_back(std::move(pair));
  }
}

void CuttingRelay::move(Pair& pair, int from) {
  std::vector<std::byte>& held = pair.held[from];
  if (held.size() < kHeldBytes) {
    std::byte bytes[16 * 1024];
    const ssize_t count = ::recv(pair.ends[from].get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) held.insert(held.end(), bytes, bytes + count);
    if (count == 0 || (count < 0 && errno != EAGAIN)) {
      pair.over = true;
      return;
    }
  }
  const std::size_t allowed = std::min(held.size(), pair.budget);
  if (allowed > 0 && pair.ends[1 - from]) {
    const ssize_t count =
        ::send(pair.ends[1 - from].get(), held.data(), allowed, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      held.erase(held.begin(), held.begin() + count);
      pair.budget -= static_cast<std::size_t>(count);
    }
  }
  if (pair.budget == 0) cut(pair);
}

void CuttingRelay::cut(Pair& pair) {
  ++num_cuts_;
  pair.over = true;
  const std::size_t loser = random_() % 2;
  switch (random_() % 3) {
    case 0:
      for (Descriptor& end : pair.ends) reset(end);
      break;
    case 1:
      break;  // both are closed in order
    default:
      mute_.push_back(std::move(pair.ends[loser]));
      reset(pair.ends[1 - loser]);
  }
}

TransportFamily cut_family(const TcpOptions& options, std::shared_ptr<CuttingRelay> relay) {
  TransportFamily family;
  family.name = "cut";
  family.make = [=](std::span<Doorbell* const> doorbells) {
    const auto size = static_cast<std::uint32_t>(doorbells.size());
    Wires wires;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      wires.transports.push_back(std::make_unique<TcpTransport>(identity(rank, size), options));
    }
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      auto& transport = static_cast<TcpTransport&>(*wires.transports[rank]);
      for (std::uint32_t peer = 0; peer < size; ++peer) {
        const auto& other = static_cast<const TcpTransport&>(*wires.transports[peer]);
        if (peer < rank) transport.dial(peer, {relay->way_to(other.endpoints().at(0))});
        if (peer > rank) transport.know(peer, {relay->way_to(other.endpoints().at(0))});
      }
    }
    wires.shared = relay;
    return wires;
  };
  return family;
}

}  // namespace slipstream::test
