#include "device/trial.h"

#include <gtest/gtest.h>

#include <string>

#include "device/fake/fake_device.h"
#include "slipstream/error.h"

namespace slipstream::test {
namespace {

/// The message of the error that a trial throws; empty if the device passes.
std::string trouble_of(Device& device, Nanoseconds limit = 2s) {
  try {
    try_device(device, limit);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Trial, PassesOnADeviceThatWorks) {
  FakeDevice device({.longest_delay = 200us});
  EXPECT_EQ(trouble_of(device), "");
  EXPECT_EQ(trouble_of(device), "") << "a trial leaves nothing behind";
  EXPECT_EQ(device.faults(), std::vector<std::string>{});
}

TEST(Trial, NamesADeviceThatNeverSeesTheWord) {
  static FakeDevice& device = *new FakeDevice({.threads = false});  // it never executes a command
  const std::string text = trouble_of(device, 20ms);
  EXPECT_EQ(text.find("a fake device does not see words of host memory: "), 0U) << text;
  EXPECT_NE(text.find("within 0.02 s"), std::string::npos) << text;
}

TEST(Trial, PassesOnTheErrorOfEveryCall) {
  for (std::uint64_t call = 1; call <= 10; ++call) {
    FakeDevice device({.failing_call = call});
    EXPECT_NE(trouble_of(device), "") << "call " << call;
  }
}

TEST(Trial, PassesOnTheFaultOfEveryCommand) {
  for (std::uint64_t command = 1; command <= 5; ++command) {
    FakeDevice device({.failing_command = command});
    const std::string text = trouble_of(device);
    EXPECT_EQ(text.find("does not see words"), std::string::npos) << "command " << command;
    EXPECT_NE(text, "") << "command " << command;
  }
}

}  // namespace
}  // namespace slipstream::test
