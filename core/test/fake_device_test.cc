#include "device/fake/fake_device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "device/pinned_memory.h"
#include "test/device_family.h"

namespace slipstream::test {
namespace {

DeviceFamily fake(std::string name, const FakeDeviceOptions& options) {
  return {std::move(name), [options] { return std::make_unique<FakeDevice>(options); }};
}

INSTANTIATE_TEST_SUITE_P(Fake, DeviceContract,
                         every_case({fake("Prompt", {}), fake("Slow", {.longest_delay = 200us})}),
                         case_name);

/// The message of the error that a call throws; empty if it throws none.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A device that does nothing but by step(), with some pinned words and two streams.
struct SteppedDevice {
  explicit SteppedDevice(FakeDeviceOptions options = {}) : device(stepped(std::move(options))) {}

  static FakeDeviceOptions stepped(FakeDeviceOptions options) {
    options.threads = false;
    return options;
  }
  void step_all() {
    while (device.step()) {
    }
  }

  FakeDevice device;
  DeviceBench bench{device};
};

/// Whether the kernel can read a byte there for this process.
bool host_can_read(DeviceAddress address) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const auto written = ::write(ends[1], reinterpret_cast<const void*>(address), 1);
  const bool faulted = written < 0 && errno == EFAULT;
  for (const int end : ends) ::close(end);
  return !faulted;
}

TEST(FakeDevice, TheHostFaultsAtDeviceMemory) {
  FakeDevice device;
  const DeviceMemory memory(device, 100);
  EXPECT_FALSE(host_can_read(memory.address()));
}

TEST(FakeDevice, NewAndFreedMemoryArePoisoned) {
  SteppedDevice stepped;
  FakeDevice& device = stepped.device;
  const DeviceAddress memory = device.allocate(64);
  device.copy_to_host(stepped.bench.first(), stepped.bench.host().data(), memory, 64);
  stepped.step_all();
  EXPECT_EQ(stepped.bench.host()[63], FakeMemory::kNewByte);
  device.free(memory);
  EXPECT_NE(device.allocate(64), memory) << "an address was given out twice";
}

TEST(FakeDevice, CopiesOfFreedMemoryAreFoundAndEndTheDevice) {
  SteppedDevice stepped;
  FakeDevice& device = stepped.device;
  const DeviceAddress memory = device.allocate(64);
  device.copy_to_host(stepped.bench.first(), stepped.bench.host().data(), memory, 64);
  device.free(memory);
  stepped.step_all();
  ASSERT_EQ(device.faults().size(), 1U);
  EXPECT_NE(device.faults()[0].find("not all of it is allocated"), std::string::npos);
  const std::string error = error_of([&] { device.make_event(); });
  EXPECT_NE(error.find("make_event: the device has failed: a copy of 64 bytes"), std::string::npos)
      << error;
}

TEST(FakeDevice, CopiesBeyondTheEndOfMemoryAreFound) {
  SteppedDevice stepped;
  const DeviceAddress memory = stepped.device.allocate(64);
  stepped.device.copy_to_host(stepped.bench.first(), stepped.bench.host().data(), memory, 65);
  stepped.step_all();
  EXPECT_EQ(stepped.device.faults().size(), 1U);
}

TEST(FakeDevice, RefusesHostMemoryThatIsNotRegistered) {
  SteppedDevice stepped;
  std::array<std::byte, 64> pageable{};
  const DeviceAddress memory = stepped.device.allocate(64);
  EXPECT_NE(error_of([&] {
              stepped.device.copy_to_host(stepped.bench.first(), pageable.data(), memory, 64);
            }).find("are not registered"),
            std::string::npos);
}

TEST(FakeDevice, RefusesTheHostsAddressOfAWord) {
  SteppedDevice stepped;
  const auto host = reinterpret_cast<DeviceAddress>(&stepped.bench.word(0));
  const std::string error =
      error_of([&] { stepped.device.wait_word(stepped.bench.first(), host, 1); });
  EXPECT_NE(error.find("is not the device's address of a word"), std::string::npos) << error;
}

TEST(FakeDevice, RefusesAWriteThatComesAfterTheWaitForIt) {
  SteppedDevice stepped;
  stepped.bench.hold(stepped.bench.first(), 0, 3);
  const auto write = [&](std::uint32_t value) {
    stepped.device.write_word(stepped.bench.second(), stepped.bench.word_address(0), value);
  };
  EXPECT_EQ(error_of([&] { write(2); }), "") << "it ends no wait";
  const std::string error = error_of([&] { write(3); });
  EXPECT_NE(error.find("what ends a wait must be enqueued before it"), std::string::npos) << error;
}

/// Two streams, each of which waits for a word that the other one writes behind its wait.
void make_circle(FakeDevice& device, DeviceBench& bench) {
  device.wait_word(bench.first(), bench.word_address(0), 1);
  device.wait_word(bench.second(), bench.word_address(1), 1);
  device.write_word(bench.first(), bench.word_address(1), 1);
  device.write_word(bench.second(), bench.word_address(0), 1);
}

TEST(FakeDevice, ReportsACircleOfWaits) {
  for (const bool threads : {false, true}) {
    FakeDevice device({.threads = threads, .allow_late_writes = true});
    DeviceBench bench(device);
    make_circle(device, bench);
    const std::string error = error_of([&] { device.synchronize(bench.second()); });
    EXPECT_NE(error.find("wait in a circle:\nstream 1 waits for word"), std::string::npos) << error;
    EXPECT_NE(error.find("ended by stream 1; commands behind: 1"), std::string::npos) << error;
  }
}

TEST(FakeDevice, AWaitForTheCpuIsNoCircle) {
  SteppedDevice stepped;
  stepped.bench.hold(stepped.bench.first(), 0, 1);
  EXPECT_FALSE(stepped.device.step());
  EXPECT_TRUE(stepped.device.faults().empty());
  stepped.bench.release(0, 1);
  EXPECT_TRUE(stepped.device.step());
}

TEST(FakeDevice, StreamsThatShareAQueueWaitForOneAnother) {
  SteppedDevice stepped({.one_queue = true, .allow_late_writes = true});
  DeviceBench& bench = stepped.bench;
  stepped.device.wait_word(bench.first(), bench.word_address(0), 1);
  stepped.device.write_word(bench.second(), bench.word_address(0), 1);
  EXPECT_FALSE(stepped.device.step());
  ASSERT_EQ(stepped.device.faults().size(), 1U) << "a circle by way of the queue";
}

TEST(FakeDevice, ACallThatWouldNeverReturnSaysWhoWaits) {
  for (const bool threads : {false, true}) {
    FakeDevice device({.threads = threads, .patience = 50ms});
    DeviceBench bench(device);
    bench.hold(bench.first(), 0, 9);
    const DeviceAddress memory = device.allocate(64);
    for (const std::string& error : {error_of([&] { device.synchronize(bench.first()); }),
                                     error_of([&] { device.free(memory); })}) {
      EXPECT_NE(error.find(" would never return:\nstream 1 waits for word"), std::string::npos)
          << error;
      EXPECT_NE(error.find("to be 9 (it is 0)"), std::string::npos) << error;
    }
  }
}

TEST(FakeDevice, CountsWhatIsMadeWhileAWordIsAwaited) {
  SteppedDevice stepped;
  stepped.device.make_event();
  EXPECT_EQ(stepped.device.counts().made_while_waiting, 0U);
  stepped.bench.hold(stepped.bench.first(), 0, 1);
  stepped.device.make_event();
  stepped.device.allocate(64);
  EXPECT_EQ(stepped.device.counts().made_while_waiting, 2U);
}

TEST(FakeDevice, AFullQueueBlocksItsCaller) {
  SteppedDevice stepped({.queue_depth = 3});
  stepped.bench.hold(stepped.bench.first(), 0, 1);
  const auto write = [&] {
    stepped.device.write_word(stepped.bench.first(), stepped.bench.word_address(1), 1);
  };
  write();
  write();
  EXPECT_NE(error_of(write).find("write_word would never return"), std::string::npos);
  EXPECT_EQ(stepped.device.counts().deepest_queue, 3U);
}

TEST(FakeDevice, FailsTheCallThatItIsToldTo) {
  FakeDevice device({.failing_call = 2});
  device.make_event();
  EXPECT_EQ(error_of([&] { device.make_event(); }), "make_event failed, as call 2 was told to");
  EXPECT_EQ(error_of([&] { device.make_event(); }), "");
}

TEST(FakeDevice, ACommandThatFailsEndsTheDevice) {
  SteppedDevice stepped({.failing_command = 2});
  for (const std::uint32_t value : {1U, 2U}) {
    stepped.device.write_word(stepped.bench.first(), stepped.bench.word_address(0), value);
  }
  stepped.step_all();
  EXPECT_EQ(stepped.bench.word(0).value, 1U);
  EXPECT_EQ(error_of([&] { stepped.device.make_event(); }),
            "make_event: the device has failed: command 2 failed, as it was told to");
}

TEST(FakeDevice, KernelsUseDeviceMemoryInTheOrderOfTheirStream) {
  FakeDevice device({.longest_delay = 200us});
  const DeviceMemory memory(device, 64);
  std::byte* bytes = device.kernel_bytes(memory.address(), 64);
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(device.kernel_bytes(memory.address(), 65), nullptr);
  const StreamHandle first = device.make_stream();
  const StreamHandle second = device.make_stream();
  const EventHandle written = device.make_event();
  std::byte seen{};
  device.launch(first, [&] { bytes[63] = std::byte{7}; });
  device.record(first, written);
  device.wait_event(second, written);
  device.launch(second, [&] { seen = bytes[63]; });
  device.synchronize_all();
  EXPECT_EQ(seen, std::byte{7});
}

TEST(FakeDevice, CopiesInOneDirectionTakeTurnsAtTheRateOfACopyEngine) {
  constexpr std::size_t kBytes = 1 << 20;  // 10 ms at the rate to the host, 20 ms to the device
  FakeDevice device(
      {.to_host_bytes_per_second = kBytes / 0.01, .to_device_bytes_per_second = kBytes / 0.02});
  const DeviceMemory memory(device, kBytes);
  const PinnedMemory pinned(device, kBytes);
  const auto seconds_of = [&](auto copy) {
    const TimePoint begin = Clock::now();
    copy(device.make_stream());
    copy(device.make_stream());
    device.synchronize_all();
    return seconds(Clock::now() - begin);
  };
  EXPECT_GE(seconds_of([&](StreamHandle stream) {
              device.copy_to_host(stream, pinned.bytes().data(), memory.address(), kBytes);
            }),
            0.02);
  EXPECT_GE(seconds_of([&](StreamHandle stream) {
              device.copy_to_device(stream, memory.address(), pinned.bytes().data(), kBytes);
            }),
            0.04);
}

TEST(FakeDevice, AnExceptionOfAKernelEndsTheDevice) {
  SteppedDevice stepped;
  stepped.device.launch(stepped.bench.first(), [] { fail(ErrorKind::kInternal, "a bad index"); });
  stepped.step_all();
  EXPECT_EQ(error_of([&] { stepped.device.make_event(); }),
            "make_event: the device has failed: a kernel failed: a bad index");
}

TEST(FakeDevice, TheSameSeedGivesTheSameOrder) {
  const auto order_of = [](std::uint64_t seed) {
    SteppedDevice stepped({.seed = seed});
    std::string order;
    for (std::uint32_t i = 1; i <= 20; ++i) {
      stepped.device.write_word(stepped.bench.first(), stepped.bench.word_address(0), i);
      stepped.device.write_word(stepped.bench.second(), stepped.bench.word_address(1), i);
    }
    std::uint32_t before = 0;
    while (stepped.device.step()) {
      const std::uint32_t now = stepped.bench.word(0).value;
      order += now == before ? '2' : '1';
      before = now;
    }
    return order;
  };
  EXPECT_EQ(order_of(1), order_of(1));
  EXPECT_NE(order_of(1), order_of(2));
}

}  // namespace
}  // namespace slipstream::test
