// The sorting of connections at a listening socket by their first bytes.

#include "slipstream/arrivals.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "test/tcp_world.h"

namespace slipstream::test {
namespace {

class ArrivalsTest : public testing::Test {
 protected:
  ArrivalsTest() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket") {
    const auto any = SocketAddress::parse("127.0.0.1:0");
    ::bind(listener_.get(), any->raw(), any->raw_size());
    ::listen(listener_.get(), 64);
  }
  ~ArrivalsTest() override {
    for (const int fd : taken_) ::close(fd);
  }

  Descriptor dial(std::string_view first) {
    Descriptor socket = connect_to(local_address(listener_.get()).text());
    ::send(socket.get(), first.data(), first.size(), MSG_NOSIGNAL);
    return socket;
  }
  Arrivals sort(std::vector<int> silent = {}, std::size_t most = 64,
                std::string_view greeting = "HELLO") {
    Arrivals arrivals = sort_arrivals(listener_.get(), silent, most, greeting);
    taken_ = arrivals.greeted;
    taken_.insert(taken_.end(), arrivals.silent.begin(), arrivals.silent.end());
    return arrivals;
  }

  Descriptor listener_;
  std::vector<int> taken_;
};

TEST_F(ArrivalsTest, ConnectionsAreSortedByTheirFirstBytes) {
  const Descriptor greets = dial("HELLO there");
  const Descriptor begins = dial("HEL");
  const Descriptor silent = dial("");
  const Descriptor stranger = dial("HELP");
  const std::string name = local_address(stranger.get()).text();
  Descriptor gone = dial("");
  gone.reset();
  const Arrivals arrivals = sort();
  EXPECT_EQ(arrivals.accepted, 5U);
  EXPECT_EQ(arrivals.error, 0);
  ASSERT_EQ(arrivals.greeted.size(), 1U);
  EXPECT_EQ(arrivals.silent.size(), 2U);
  ASSERT_EQ(arrivals.refused.size(), 2U);
  EXPECT_EQ(arrivals.refused[0], name);

  std::string unread(16, '\0');
  EXPECT_EQ(::recv(arrivals.greeted[0], unread.data(), unread.size(), 0), 11);
  EXPECT_TRUE(unread.starts_with("HELLO there"));
  EXPECT_NE(::fcntl(arrivals.greeted[0], F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(::fcntl(arrivals.greeted[0], F_GETFD) & FD_CLOEXEC, 0);
  char byte = 0;
  EXPECT_LE(::recv(stranger.get(), &byte, 1, 0), 0);  // it was closed
}

TEST_F(ArrivalsTest, SilentConnectionsAreSortedAgain) {
  const Descriptor late = dial("HEL");
  const Descriptor wrong = dial("");
  const Descriptor still = dial("");
  const Arrivals first = sort();
  ASSERT_EQ(first.silent.size(), 3U);
  ::send(late.get(), "LO", 2, 0);
  ::send(wrong.get(), "x", 1, 0);
  const Arrivals second = sort(first.silent);
  EXPECT_EQ(second.accepted, 0U);
  EXPECT_EQ(second.greeted, std::vector<int>{first.silent[0]});
  EXPECT_EQ(second.silent, std::vector<int>{first.silent[2]});
  EXPECT_EQ(second.refused.size(), 1U);
}

TEST_F(ArrivalsTest, WithoutAGreetingAllAreGreetedUpToALimit) {
  std::vector<Descriptor> dialled;
  for (int i = 0; i < 3; ++i) dialled.push_back(dial(i == 0 ? "x" : ""));
  EXPECT_EQ(sort({}, 2, "").greeted.size(), 2U);
  const std::vector<int> earlier = taken_;
  EXPECT_EQ(sort({}, 2, "").greeted.size(), 1U);
  taken_.insert(taken_.end(), earlier.begin(), earlier.end());
}

TEST_F(ArrivalsTest, ALackOfFilesIsReported) {
  const Descriptor waiting = dial("HELLO");
  rlimit limits{};
  ::getrlimit(RLIMIT_NOFILE, &limits);
  const int free = ::dup(0);
  ::close(free);
  const rlimit few{static_cast<rlim_t>(free), limits.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  const Arrivals none = sort();
  ::setrlimit(RLIMIT_NOFILE, &limits);
  EXPECT_EQ(none.error, EMFILE);
  EXPECT_EQ(none.accepted, 0U);
  EXPECT_EQ(sort().greeted.size(), 1U);
}

}  // namespace
}  // namespace slipstream::test
