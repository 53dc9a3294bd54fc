#include "topology/interfaces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "slipstream/error.h"

namespace slipstream {
namespace {

SocketAddress address(const std::string& text) { return SocketAddress::parse(text).value(); }

InterfaceAddress on(const std::string& interface, const std::string& text, bool up = true) {
  return {interface, address(text), up};
}

/// A host with two networks, containers, and IPv6 on one of the networks.
std::vector<InterfaceAddress> host() {
  return {on("lo", "127.0.0.1"),         on("lo", "::1"),
          on("eth0", "10.0.0.7"),        on("eth0", "fd00::7"),
          on("eth0", "fe80::7"),         on("ib0", "192.168.5.7"),
          on("eth1", "10.1.0.7", false), on("docker0", "172.17.0.1")};
}

std::vector<std::string> hosts_of(const std::vector<AddressCandidate>& candidates) {
  std::vector<std::string> hosts;
  for (const AddressCandidate& each : candidates) hosts.push_back(each.address.host());
  return hosts;
}

std::vector<std::string> order(const std::string& filter, const std::optional<Route>& route) {
  return hosts_of(order_addresses(host(), InterfaceFilter::parse(filter), route));
}

using Hosts = std::vector<std::string>;

TEST(InterfaceFilter, TakesNcclSyntax) {
  const auto allows = [](const char* filter, const char* interface) {
    return InterfaceFilter::parse(filter).allows(interface);
  };
  EXPECT_TRUE(allows("", "anything0"));
  EXPECT_TRUE(allows("eth,ib", "eth0"));
  EXPECT_TRUE(allows("eth,ib", "ib3"));
  EXPECT_FALSE(allows("eth,ib", "enp3s0"));
  EXPECT_FALSE(allows("^docker,lo", "docker0"));
  EXPECT_FALSE(allows("^docker,lo", "lo"));
  EXPECT_TRUE(allows("^docker,lo", "eth0"));
  EXPECT_TRUE(allows("=eth0,eth1", "eth1"));
  EXPECT_FALSE(allows("=eth0", "eth01"));
  EXPECT_FALSE(allows("^=eth0", "eth0"));
  EXPECT_TRUE(allows("^=eth0", "eth01"));
}

TEST(InterfaceFilter, SaysWhatItIs) {
  for (const char* text : {"", "eth,ib", "^docker,lo", "=eth0", "^=eth0,eth1"}) {
    EXPECT_EQ(InterfaceFilter::parse(text).text(), text);
  }
}

TEST(InterfaceFilter, RefusesMissingNames) {
  for (const char* text : {"^", "=", "^=", ",", "eth0,", ",eth0", "a,,b"}) {
    try {
      InterfaceFilter::parse(text);
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

TEST(OrderAddresses, PutsTheSourceOfTheRouteFirst) {
  const Route route{"10.0.0.1", address("10.0.0.7")};
  const auto candidates = order_addresses(host(), {}, route);
  EXPECT_EQ(hosts_of(candidates), (Hosts{"10.0.0.7", "fd00::7", "192.168.5.7", "fe80::7"}));
  EXPECT_EQ(candidates[0].reason, "route to 10.0.0.1");
  EXPECT_EQ(candidates[0].interface, "eth0");
  EXPECT_EQ(candidates[1].reason, "interface of the route to 10.0.0.1");
  EXPECT_EQ(order("", Route{"ib-head", address("192.168.5.7")}),
            (Hosts{"192.168.5.7", "10.0.0.7", "fd00::7", "fe80::7"}));
}

TEST(OrderAddresses, PrefersTheFamilyOfTheRoute) {
  EXPECT_EQ(order("", Route{"fd00::1", address("fd00::7")}),
            (Hosts{"fd00::7", "10.0.0.7", "192.168.5.7", "fe80::7"}));
}

TEST(OrderAddresses, WithoutARouteTakesWhatIsUpAndNotTheSameOnEveryHost) {
  EXPECT_EQ(order("", {}), (Hosts{"10.0.0.7", "fd00::7", "192.168.5.7", "fe80::7"}));
}

TEST(OrderAddresses, StaysOnLoopbackWhenTheJobIsThere) {
  EXPECT_EQ(order("", Route{"localhost", address("127.0.0.1")}), (Hosts{"127.0.0.1", "::1"}));
  EXPECT_EQ(order("", Route{"::1", address("::1")}), (Hosts{"::1", "127.0.0.1"}));
  EXPECT_EQ(order("^docker", Route{"127.0.0.1", address("127.0.0.1")}),
            (Hosts{"127.0.0.1", "::1"}));
}

TEST(OrderAddresses, ObeysTheFilterAgainstTheRoute) {
  const Route route{"10.0.0.1", address("10.0.0.7")};
  const auto candidates = order_addresses(host(), InterfaceFilter::parse("=ib0"), route);
  EXPECT_EQ(hosts_of(candidates), Hosts{"192.168.5.7"});
  EXPECT_EQ(candidates[0].reason, "SLIPSTREAM_IFACE==ib0");
  EXPECT_EQ(order("^eth", route), (Hosts{"192.168.5.7", "172.17.0.1"}));
  EXPECT_EQ(order("^lo", Route{"127.0.0.1", address("127.0.0.1")}),
            (Hosts{"10.0.0.7", "fd00::7", "192.168.5.7", "172.17.0.1", "fe80::7"}));
  EXPECT_EQ(order("docker", route), Hosts{"172.17.0.1"});
  EXPECT_EQ(order("lo", route), (Hosts{"127.0.0.1", "::1"}));
  EXPECT_EQ(order("eth1", route), Hosts{}) << "it is down";
}

TEST(OrderAddresses, NamesTheRouteEvenWhereTheFilterAgrees) {
  const Route route{"10.0.0.1", address("10.0.0.7")};
  const auto candidates = order_addresses(host(), InterfaceFilter::parse("^docker"), route);
  EXPECT_EQ(candidates.at(0).reason, "route to 10.0.0.1");
  EXPECT_EQ(candidates.at(1).reason, "SLIPSTREAM_IFACE=^docker");
}

/// The reason why an address of host() is not used; empty if it is used.
std::string refusal(const std::string& of, const std::string& filter,
                    const std::optional<Route>& route) {
  for (const auto& each : judge_addresses(host(), InterfaceFilter::parse(filter), route)) {
    if (each.address.host() == of) return each.usable ? "" : each.reason;
  }
  return of + " is missing";
}

TEST(JudgeAddresses, SaysWhyAnAddressIsNotUsed) {
  const Route route{"10.0.0.1", address("10.0.0.7")};
  EXPECT_EQ(refusal("10.0.0.7", "", route), "");
  EXPECT_EQ(refusal("192.168.5.7", "", route), "");
  EXPECT_EQ(refusal("10.1.0.7", "", route), "the interface is down");
  EXPECT_EQ(refusal("127.0.0.1", "", route), "loopback does not reach other hosts");
  EXPECT_EQ(refusal("172.17.0.1", "", route),
            "a bridge of containers or virtual machines, whose address is the same on every host");
  EXPECT_EQ(refusal("192.168.5.7", "^ib", route), "SLIPSTREAM_IFACE=^ib excludes it");
  EXPECT_EQ(refusal("10.0.0.7", "=ib0", route), "SLIPSTREAM_IFACE==ib0 does not name it");
  EXPECT_EQ(refusal("10.0.0.7", "", Route{"localhost", address("127.0.0.1")}),
            "the route to localhost stays on this host");
}

TEST(JudgeAddresses, PutsUnusableAddressesLast) {
  const auto all = judge_addresses(host(), {}, Route{"10.0.0.1", address("10.0.0.7")});
  ASSERT_EQ(all.size(), host().size());
  EXPECT_TRUE(std::ranges::is_partitioned(all, &AddressCandidate::usable));
}

TEST(Interfaces, ExplainsEveryAddressOfThisHost) {
  const auto all = explain_addresses({}, "127.0.0.1");
  EXPECT_EQ(all.size(), list_interfaces().size());
  EXPECT_EQ(all.at(0).address.host(), choose_addresses({}, "127.0.0.1").at(0).address.host());
  const auto none = explain_addresses(InterfaceFilter::parse("=nosuch0"), "");
  EXPECT_TRUE(std::ranges::none_of(none, &AddressCandidate::usable)) << "no error is thrown";
}

TEST(Interfaces, ListsLoopback) {
  const auto addresses = list_interfaces();
  const auto loopback = std::ranges::find_if(
      addresses, [](const auto& each) { return each.address.host() == "127.0.0.1"; });
  ASSERT_NE(loopback, addresses.end());
  EXPECT_TRUE(loopback->up);
  EXPECT_EQ(loopback->interface, interface_of(address("127.0.0.1")));
}

TEST(Interfaces, LinkLocalAddressesNameTheirInterface) {
  for (const InterfaceAddress& each : list_interfaces()) {
    if (each.address.family() != AF_INET6 || !each.address.is_link_local()) continue;
    EXPECT_TRUE(each.address.host().ends_with("%" + each.interface)) << each.address.host();
    EXPECT_TRUE(address(each.address.host()).same_host(each.address));
  }
}

TEST(Interfaces, TheRouteToLoopbackStartsThere) {
  EXPECT_EQ(route_source(address("127.0.0.1")).value().host(), "127.0.0.1");
  const auto candidates = choose_addresses({}, "127.0.0.1");
  EXPECT_EQ(candidates.at(0).address.host(), "127.0.0.1");
  EXPECT_EQ(candidates.at(0).reason, "route to 127.0.0.1");
  EXPECT_EQ(choose_addresses({}, "localhost").at(0).reason, "route to localhost");
}

TEST(Interfaces, ARouteToAnAddressOfThisHostIsThatAddress) {
  for (const InterfaceAddress& each : list_interfaces()) {
    if (!each.up || each.address.is_link_local()) continue;
    EXPECT_EQ(route_source(each.address).value().host(), each.address.host());
  }
}

TEST(Interfaces, SomethingIsChosenWithoutAnyHint) {
  EXPECT_FALSE(choose_addresses({}, "").empty());
}

TEST(Interfaces, AFilterThatLeavesNothingIsAnErrorThatListsWhatThereIs) {
  try {
    choose_addresses(InterfaceFilter::parse("=nosuch0"), "");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("SLIPSTREAM_IFACE==nosuch0"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("127.0.0.1"), std::string::npos) << error.what();
  }
}

TEST(SocketAddress, ReadsWhatItWrites) {
  for (const char* text : {"10.0.0.1:4000", "[fd00::1]:4000", "0.0.0.0:0", "[::]:65535"}) {
    EXPECT_EQ(address(text).text(), text);
  }
  EXPECT_EQ(address("10.0.0.1").text(), "10.0.0.1:0");
  EXPECT_EQ(address("fd00::1").text(), "[fd00::1]:0");
  EXPECT_EQ(address("[fd00::1]").text(), "[fd00::1]:0");
  EXPECT_EQ(address("fe80::1%1").scope(), 1U);
  EXPECT_EQ(address("[fe80::1%lo]:7").text(), "[fe80::1%lo]:7");
}

TEST(SocketAddress, RefusesWhatIsNoAddress) {
  for (const char* text :
       {"", "host", "host:1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:x", "10.0.0", "[fd00::1",
        "[fd00::1]4000", "fd00::1]:4000", "10.0.0.1%lo", "1.2.3.4:-1", "[10.0.0.1:4"}) {
    EXPECT_FALSE(SocketAddress::parse(text)) << text;
  }
}

TEST(SocketAddress, KnowsSpecialAddresses) {
  EXPECT_TRUE(address("127.3.2.1").is_loopback());
  EXPECT_TRUE(address("::1").is_loopback());
  EXPECT_FALSE(address("10.0.0.1").is_loopback());
  EXPECT_TRUE(address("169.254.9.9").is_link_local());
  EXPECT_TRUE(address("fe80::9").is_link_local());
  EXPECT_FALSE(address("fd00::9").is_link_local());
  EXPECT_TRUE(address("10.0.0.1:1").same_host(address("10.0.0.1:2")));
  EXPECT_FALSE(address("10.0.0.1").same_host(address("10.0.0.2")));
  EXPECT_FALSE(address("fe80::1%1").same_host(address("fe80::1%2")));
}

}  // namespace
}  // namespace slipstream
