#include <gtest/gtest.h>

#include <string>

#include "slipstream/negotiation.h"
#include "test/negotiation_world.h"

/// Reports about tensors that some ranks have not submitted.
namespace slipstream::test {
namespace {

TEST(stall, report_names_who_has_submitted_and_who_has_not) {
  NegotiationOptions options;
  options.hold = 10ms;
  options.stall_after = 500ms;
  NegotiationWorld world(4, options);
  world.each([](std::uint32_t, NegotiatingRank& self) {
    self.submit("common");
    self.take_ready(1);
  });
  for (const std::uint32_t rank : {2U, 0U}) world[rank].submit("slow");
  for (const std::uint32_t rank : {1U, 2U, 0U}) world[rank].submit("slower");
  const std::string report = world.world[0].wait_for("'slower'");
  EXPECT_NE(report.find("2 tensors of group 'world' have waited for more than 0.5 s"),
            std::string::npos)
      << report;
  EXPECT_NE(report.find("'slow': submitted by ranks 0, 2; not yet by ranks 1, 3"),
            std::string::npos);
  EXPECT_NE(report.find("'slower': submitted by ranks 0, 1, 2; not yet by rank 3"),
            std::string::npos);
  EXPECT_EQ(report.find("common"), std::string::npos);
  EXPECT_EQ(report.find("last report"), std::string::npos);
  world[1].submit("slow");
  world[3].submit("slow");
  world[3].submit("slower");
  world.each([](std::uint32_t, NegotiatingRank& self) { self.take_ready(3); });
}

TEST(stall, reported_again_says_what_has_changed) {
  NegotiationOptions options;
  options.hold = 10ms;
  options.stall_after = 50ms;
  NegotiationWorld world(3, options);
  EngineRank& reporter = world.world[0];
  for (const std::string name : {"slow", "soon"}) world[0].submit(name);
  reporter.wait_for(
      "'slow': submitted by rank 0; not yet by ranks 1, 2; nothing has changed since the last");
  world[2].submit("slow");
  reporter.wait_for(
      "'slow': submitted by ranks 0, 2; not yet by rank 1; new since the last report: rank 2");
  for (const std::uint32_t rank : {1U, 2U}) world[rank].submit("soon");
  reporter.wait_for("\n  'soon' was reported before, and waits no longer");
  world[1].submit("soon");
  const std::string in_another_step = "'soon': submitted by rank 1; not yet by ranks 0, 2";
  const std::string first = reporter.wait_for(in_another_step);
  EXPECT_NE(first.substr(first.find(in_another_step) + in_another_step.size(), 1), ";") << first;
  for (const std::uint32_t rank : {0U, 2U}) world[rank].submit("soon");
  world[1].submit("slow");
  world.each([](std::uint32_t, NegotiatingRank& self) { self.take_ready(3); });
}

}  // namespace
}  // namespace slipstream::test
