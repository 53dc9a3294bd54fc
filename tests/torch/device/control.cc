// Functions for Python, which teststream.py calls through ctypes.

#include <cstring>
#include <string>
#include <thread>

#include "device.h"

using namespace slipstream;              // NOLINT(google-build-using-namespace): C has no names
using namespace slipstream::teststream;  // NOLINT(google-build-using-namespace)

extern "C" {

void teststream_configure(std::int64_t longest_delay_us, std::uint64_t seed,
                          double to_host_bytes_per_second, double to_device_bytes_per_second) {
  options().seed = seed;
  options().longest_delay = std::chrono::microseconds(longest_delay_us);
  options().to_host_bytes_per_second = to_host_bytes_per_second;
  options().to_device_bytes_per_second = to_device_bytes_per_second;
}

/// Calls a function in the current stream.
void teststream_launch(void (*function)(std::int64_t), std::int64_t argument) {
  device().launch(handle_of(current_stream()), [=] { function(argument); });
}

/// Keeps the current stream busy.
void teststream_sleep(std::int64_t duration_us) {
  device().launch(handle_of(current_stream()),
                  [=] { std::this_thread::sleep_for(std::chrono::microseconds(duration_us)); });
}

std::uint64_t teststream_kernel_address(std::uint64_t memory, std::uint64_t num_bytes) {
  return reinterpret_cast<std::uint64_t>(kernel_bytes(reinterpret_cast<void*>(memory), num_bytes));
}

/// Writes the faults of the device, or what its streams do, as text that ends with 0.
void teststream_describe(char* text, std::uint64_t size) {
  std::string described;
  for (const std::string& fault : device().faults()) described += fault + "\n";
  described += device().describe_queues();
  std::strncpy(text, described.c_str(), size - 1);
}

}  // extern "C"
