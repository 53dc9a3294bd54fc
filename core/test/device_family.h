#pragma once

// The contract of devices as tests. The test of a device contains
//   INSTANTIATE_TEST_SUITE_P(Fake, DeviceContract, every_case({{"Prompt", make}}), case_name);
// If this machine does not have the device, the tests are skipped and the reason is shown.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "test/device_contract.h"

namespace slipstream::test {

struct DeviceFamily {
  std::string name;
  /// Throws Error(kUnsupported) if this machine has no such device.
  std::function<std::unique_ptr<Device>()> make;
};

using DeviceParameter = std::tuple<DeviceFamily, DeviceCase>;

class DeviceContract : public testing::TestWithParam<DeviceParameter> {};

TEST_P(DeviceContract, Holds) {
  const auto& [family, contract_case] = GetParam();
  std::unique_ptr<Device> device;
  try {
    device = family.make();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    GTEST_SKIP() << error.what();
  }
  EXPECT_FALSE(device->describe().empty());
  EXPECT_NO_THROW(contract_case.run(*device));
}

inline auto every_case(const std::vector<DeviceFamily>& families) {
  const auto cases = device_contract();
  return testing::Combine(testing::ValuesIn(families),
                          testing::ValuesIn(cases.begin(), cases.end()));
}

inline std::string case_name(const testing::TestParamInfo<DeviceParameter>& info) {
  const auto& [family, contract_case] = info.param;
  return family.name + "_" + contract_case.name;
}

}  // namespace slipstream::test
