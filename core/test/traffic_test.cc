#include "transport/tcp/traffic.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "base/descriptor.h"
#include "engine_world.h"

namespace slipstream::test {
namespace {

Descriptor tcp_socket(int family = AF_INET) {
  return Descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
}

template <typename T>
T option(const Descriptor& socket, int level, int name) {
  T value{};
  socklen_t size = sizeof value;
  EXPECT_EQ(::getsockopt(socket.get(), level, name, &value, &size), 0);
  return value;
}

TEST(Traffic, IsSetForASocket) {
  const Descriptor socket = tcp_socket();
  apply({.congestion = "reno", .dscp = 10, .bytes_per_second = 5'000'000}, socket.get());
  const auto congestion = option<std::array<char, 16>>(socket, IPPROTO_TCP, TCP_CONGESTION);
  EXPECT_EQ(std::string(congestion.data()), "reno");
  EXPECT_EQ(option<int>(socket, IPPROTO_IP, IP_TOS), 10 << 2);
  EXPECT_EQ(option<std::uint64_t>(socket, SOL_SOCKET, SO_MAX_PACING_RATE), 5'000'000U);
}

TEST(Traffic, HasACodePointInIpv6AsWell) {
  const Descriptor socket = tcp_socket(AF_INET6);
  apply({.congestion = "", .dscp = 46}, socket.get());
  EXPECT_EQ(option<int>(socket, IPPROTO_IPV6, IPV6_TCLASS), 46 << 2);
}

TEST(Traffic, WhatTheSystemDoesNotHaveIsNamed) {
  const Descriptor socket = tcp_socket();
  const std::string error = error_of([&] { apply({.congestion = "warp"}, socket.get()); });
  EXPECT_NE(error.find("SLIPSTREAM_CONGESTION is 'warp'"), std::string::npos) << error;
  EXPECT_NE(error.find("tcp_allowed_congestion_control"), std::string::npos) << error;
}

}  // namespace
}  // namespace slipstream::test
