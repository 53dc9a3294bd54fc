// Leads TCP connections between the hosts of a lab through the lab's relay.
//
// The hosts of a lab without network namespaces are groups of processes that share the addresses of
// this machine. Each process loads this library before the C library (LD_PRELOAD). A table in a
// shared file says which host listens on each port. A connection to a port of another host goes to
// the port of the relay at the same address instead, and the table tells the relay which port was
// meant. All other connections stay as they are.

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t kPorts = 65536;

// The layout of the file, which slipstream.lab.relay also reads. Host 0 is the number 1, because
// a new file consists of zeros.
struct Table {
  std::array<std::atomic<std::uint8_t>, kPorts> listening_host;   // by port of the listener
  std::array<std::atomic<std::uint8_t>, kPorts> connecting_host;  // by port of the connecting end
  std::array<std::atomic<std::uint16_t>, kPorts> wanted_port;     // by port of the connecting end
};
static_assert(sizeof(Table) == 4 * kPorts);

// What LAB_RELAY says: the path of the table, the number of this host and the port of the relay.
struct Lab {
  Table* table = nullptr;
  const char* path = nullptr;
  std::uint8_t host = 0;
  std::uint16_t relay_port = 0;
};

// Ends the process, because its connections would not be shaped.
[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "slipstream lab: %s; LAB_RELAY is wrong\n", what);
  std::abort();
}

// Reads a number that a colon follows, and moves the text behind the colon.
unsigned long read_number(const char*& text) {
  char* end = nullptr;
  const unsigned long number = std::strtoul(text, &end, 10);
  if (end == text || *end != ':') fail("the relay cannot be found");
  text = end + 1;
  return number;
}

Lab open_lab() {
  const char* text = std::getenv("LAB_RELAY");
  if (text == nullptr) return {};
  const unsigned long host = read_number(text);
  const unsigned long port = read_number(text);
  const int file = ::open(text, O_RDWR | O_CLOEXEC);
  if (file < 0) fail(std::strerror(errno));
  void* memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) fail(std::strerror(errno));
  ::close(file);
  return {static_cast<Table*>(memory), text, static_cast<std::uint8_t>(host + 1),
          static_cast<std::uint16_t>(port)};
}

const Lab& lab() {
  static const Lab opened = open_lab();
  return opened;
}

// Excludes other processes. A port begins to listen and enters the table under an exclusive lock,
// so that no process connects in between. Linux drops the lock of a process that is killed.
class TableLock {
 public:
  explicit TableLock(int mode) : file_(::open(lab().path, O_RDONLY | O_CLOEXEC)) {
    while (::flock(file_, mode) != 0 && errno == EINTR) {
    }
  }
  ~TableLock() { ::close(file_); }
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;

 private:
  int file_;
};

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

// An address of IPv4 or IPv6; both have the port at the same place.
union Address {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
  sockaddr_storage storage;

  bool is_internet() const { return any.sa_family == AF_INET || any.sa_family == AF_INET6; }
  std::uint16_t port() const { return ntohs(v4.sin_port); }
  // Whether a connection succeeds or fails at once, as far as nobody's backlog is full.
  bool is_loopback() const {
    return any.sa_family == AF_INET ? (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET
                                    : IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
  }
};
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));

bool is_stream(int socket) {
  int kind = 0;
  socklen_t size = sizeof(kind);
  return ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 && kind == SOCK_STREAM;
}

// Returns the local port of a socket; 0 if it has none.
std::uint16_t local_port(int socket) {
  Address local{};
  socklen_t size = sizeof(local);
  const bool known = ::getsockname(socket, &local.any, &size) == 0 && local.is_internet();
  return known ? local.port() : std::uint16_t{0};
}

// Returns the local port of a socket that will connect, and chooses one if it has none. After a
// connection that was refused, Linux still names the port that the socket had, but has taken it
// back: only bind() knows whether a socket has a port.
std::uint16_t choose_port(int socket, sa_family_t family) {
  Address free{};  // zeros are any address and any port
  free.any.sa_family = family;
  const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const bool has_port = ::bind(socket, &free.any, size) == 0 || errno == EINVAL;
  return has_port ? local_port(socket) : std::uint16_t{0};
}

// Whether a connection to a port leaves this host of the lab.
bool leaves_host(std::uint16_t port) {
  const std::uint8_t host = lab().table->listening_host[port].load();
  return host != 0 && host != lab().host;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int listen(int socket, int backlog) {
  static const auto real = next<int (*)(int, int)>("listen");
  if (lab().table == nullptr) return real(socket, backlog);
  const TableLock lock(LOCK_EX);
  const int result = real(socket, backlog);
  const int error = errno;
  const std::uint16_t port = result == 0 ? local_port(socket) : std::uint16_t{0};
  if (port != 0) lab().table->listening_host[port].store(lab().host);
  errno = error;
  return result;
}

extern "C" __attribute__((visibility("default"))) int connect(int socket, const sockaddr* address,
                                                              socklen_t size) {
  static const auto real = next<int (*)(int, const sockaddr*, socklen_t)>("connect");
  Address target{};
  if (lab().table == nullptr || address == nullptr || size < sizeof(sockaddr_in) ||
      size > sizeof(target)) {
    return real(socket, address, size);
  }
  std::memcpy(&target, address, size);
  if (!target.is_internet() || !is_stream(socket)) return real(socket, address, size);
  if (!leaves_host(target.port())) {
    if (!target.is_loopback()) return real(socket, address, size);
    const TableLock lock(LOCK_SH);
    if (!leaves_host(target.port())) return real(socket, address, size);
  }
  const std::uint16_t own = choose_port(socket, target.any.sa_family);
  if (own == 0) return -1;  // with the error of bind()
  lab().table->wanted_port[own].store(target.port());
  lab().table->connecting_host[own].store(lab().host);
  target.v4.sin_port = htons(lab().relay_port);
  return real(socket, &target.any, size);
}
