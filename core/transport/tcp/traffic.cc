#include "transport/tcp/traffic.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "slipstream/error.h"

namespace slipstream {

void apply(const Traffic& traffic, int socket) {
  if (!traffic.congestion.empty() &&
      ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, traffic.congestion.data(),
                   static_cast<socklen_t>(traffic.congestion.size())) != 0) {
    fail(ErrorKind::kConfig, "SLIPSTREAM_CONGESTION is '", traffic.congestion,
         "': ", std::strerror(errno),
         "; allowed: the names that sysctl net.ipv4.tcp_allowed_congestion_control lists");
  }
  if (traffic.dscp > 0) {
    const int field = traffic.dscp << 2U;
    // Only the call for the socket's own family must succeed.
    const int v4 = ::setsockopt(socket, IPPROTO_IP, IP_TOS, &field, sizeof field);
    const int v6 = ::setsockopt(socket, IPPROTO_IPV6, IPV6_TCLASS, &field, sizeof field);
    if (v4 != 0 && v6 != 0) {
      fail(ErrorKind::kConfig, "SLIPSTREAM_DSCP is ", int{traffic.dscp},
           ", which the system refuses: ", std::strerror(errno), "; unset it");
    }
  }
  if (traffic.bytes_per_second > 0 &&
      ::setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &traffic.bytes_per_second,
                   sizeof traffic.bytes_per_second) != 0) {
    fail(ErrorKind::kConfig, "SLIPSTREAM_PACING_MBIT asks for ", traffic.bytes_per_second,
         " bytes/s, which the system refuses: ", std::strerror(errno), "; unset it");
  }
}

}  // namespace slipstream
