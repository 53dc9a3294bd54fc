// Floods of strangers at a listening socket.

#include "transport/tcp/listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

#include "test/tcp_world.h"

namespace slipstream::test {
namespace {

class ListenerTest : public testing::Test {
 protected:
  ListenerTest() {
    Listener::Options options;
    options.bind = {"127.0.0.1"};
    options.log = Log([this](LogLevel, const std::string& text) { logged_.push_back(text); });
    listener_ = std::make_unique<Listener>(poller_, identity(0, 2), std::move(options));
  }

  std::vector<Listener::Arrival> look() {
    poller_.poll(sink_);
    return listener_->settle();
  }
  Descriptor stranger() {
    Descriptor socket = connect_to(listener_->endpoints()[0]);
    ::send(socket.get(), "GET / HTTP/1.1", 14, MSG_NOSIGNAL);
    return socket;
  }
  void flood() {
    const TimePoint limit = Clock::now() + kPatience;
    while (!listener_->is_flooded() && Clock::now() < limit) {
      strangers_.push_back(stranger());
      look();
    }
    ASSERT_TRUE(listener_->is_flooded());
  }

  Poller poller_;
  RecordingSink sink_;
  std::vector<std::string> logged_;
  std::unique_ptr<Listener> listener_;
  std::vector<Descriptor> strangers_;
};

TEST_F(ListenerTest, DuringAFloodStrangersAreRefusedAndARankIsAccepted) {
  flood();
  for (int i = 0; i < 200; ++i) strangers_.push_back(stranger());
  const Descriptor socket = connect_to(listener_->endpoints()[0]);
  Handshake rank = Handshake::connect(identity(1, 2), {.peer = 0, .num_streams = 2});
  std::vector<Listener::Arrival> arrivals;
  const TimePoint limit = Clock::now() + kPatience;
  while (arrivals.empty() && Clock::now() < limit) {
    rank.advance(socket.get());
    arrivals = look();
    std::this_thread::sleep_for(1ms);
  }
  ASSERT_EQ(arrivals.size(), 1U);
  EXPECT_EQ(arrivals[0].hello.from, 1U);
  EXPECT_TRUE(listener_->is_flooded());
  while (rank.advance(socket.get()) == Handshake::Progress::kPending && Clock::now() < limit) {
  }
  EXPECT_EQ(rank.reason(), "");
}

TEST_F(ListenerTest, AFloodWakesNobodyBetweenTwoLooks) {
  flood();
  look();
  const TimePoint next = listener_->next_event();
  EXPECT_GT(next, Clock::now() - 50ms);
  strangers_.push_back(stranger());
  EXPECT_FALSE(poller_.poll(sink_));  // its socket is not watched
}

TEST_F(ListenerTest, AFloodEndsWithTheStrangers) {
  flood();
  const TimePoint limit = Clock::now() + kPatience;
  while (listener_->is_flooded() && Clock::now() < limit) {
    look();
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_FALSE(listener_->is_flooded());
  strangers_.push_back(stranger());
  while (!poller_.poll(sink_) && Clock::now() < limit) {
  }
  EXPECT_LT(Clock::now(), limit);  // its arrival is noticed at once again
}

}  // namespace
}  // namespace slipstream::test
