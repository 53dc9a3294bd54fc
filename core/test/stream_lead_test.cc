#include "engine/stream_lead.h"

#include <gtest/gtest.h>

namespace slipstream::test {
namespace {

constexpr TimePoint kStart{std::chrono::hours(1)};

TEST(StreamLead, TheLowestOfThoseThatWaitFirstLeads) {
  StreamLead second(2), third(3);
  second.waited(kStart, 10ms);
  third.waited(kStart, 10ms);
  EXPECT_FALSE(second.hears(kStart, 3));
  EXPECT_TRUE(third.hears(kStart, 2));
  EXPECT_TRUE(second.leads());
  EXPECT_FALSE(third.leads());
  EXPECT_EQ(third.leader(), 2U);
}

TEST(StreamLead, WhoDoesNotWaitFollowsAnybody) {
  StreamLead first(0);
  EXPECT_TRUE(first.hears(kStart, 3));
  EXPECT_EQ(first.leader(), 3U);
  EXPECT_TRUE(first.hears(kStart + 1s, 1));
  EXPECT_FALSE(first.hears(kStart + 1s, 3));
}

TEST(StreamLead, TheSameRankLeadsAfterALongPause) {
  StreamLead follower(0);
  ASSERT_TRUE(follower.hears(kStart, 1));
  follower.waited(kStart + 60s, 100ms);
  EXPECT_FALSE(follower.leads());
  EXPECT_TRUE(follower.hears(kStart + 60s, 1));
}

TEST(StreamLead, WhoWaitsForLongWithoutAWordTakesOver) {
  StreamLead before(0), after(2);
  before.waited(kStart, 10ms);
  ASSERT_TRUE(after.hears(kStart, 0));
  for (auto at = 1s; at <= 10s; at += 1s) after.waited(kStart + at, 1s);
  EXPECT_TRUE(after.leads());
  EXPECT_TRUE(before.hears(kStart + 10s, 2));
}

}  // namespace
}  // namespace slipstream::test
