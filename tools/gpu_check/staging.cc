// Runs staging on a real GPU: the contract of devices, the comparison of every word of the results,
// rates, latencies, and rings that open. Prints one JSON object per line.
//
//   staging PART [LIBRARY [MEBIBYTES]]
//
// PART is contract, correctness, rates, latency, trouble or sharing; LIBRARY is the CUDA driver;
// MEBIBYTES, 256 unless given, is the size of large tensors.

#include "device/staging.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "gate/engine_thread.h"
#include "test/device_contract.h"
#include "test/staging_world.h"

namespace slipstream::test {
namespace {

constexpr std::size_t kKibibyte = 1 << 10, kMebibyte = 1 << 20;
constexpr std::array kSlotBytes{kMebibyte / 2, kMebibyte, 2 * kMebibyte, 4 * kMebibyte};
constexpr std::size_t kTotalMebibytes = 256;
constexpr int kRepeats = 5;

/// The arguments of every part.
struct Bench {
  Device& device;
  std::size_t total_bytes;  ///< of large tensors
};

/// A line of the output.
class Row {
 public:
  template <typename Value>
  Row& add(const char* name, const Value& value) {
    text_ += concat(text_.empty() ? "{\"" : ", \"", name, "\": ", json(value));
    return *this;
  }
  void print() const { std::cout << text_ << "}\n" << std::flush; }

 private:
  static std::string json(const std::string& value) {
    std::string quoted = "\"";
    for (const char each : value) {
      if (each == '"' || each == '\\') quoted += '\\';
      quoted += each == '\n' ? ' ' : each;
    }
    return quoted + "\"";
  }
  static std::string json(const char* value) { return json(std::string(value)); }
  static std::string json(bool value) { return value ? "true" : "false"; }
  template <typename Number>
  static std::string json(const Number& value) {
    return concat(value);
  }

  std::string text_;
};

double since(TimePoint start) { return seconds(Clock::now() - start); }

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples.at(samples.size() / 2);
}

double gigabytes_per_second(std::size_t num_bytes, double time) {
  return static_cast<double>(num_bytes) / time / 1e9;
}

StagingOptions options_of(std::size_t slot_bytes, std::uint32_t num_slots) {
  return {.ring = {.num_slots = num_slots,
                   .slot_bytes = slot_bytes,
                   .first_sequence = 0xffff'fff0}};  // so that every part wraps
}

/// An engine that passes flags on and touches no byte, which gives the highest rate.
class Relay {
 public:
  explicit Relay(GatedRing& ring)
      : ring_(ring), next_(ring.shape().first_sequence), thread_([this] { run(); }) {}
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay() {
    ending_ = true;
    thread_.join();
  }

 private:
  void run() {
    const EngineThread engine;
    while (!ending_.load(std::memory_order_relaxed)) {
      if (ring_.ready(next_)) ring_.release(next_++);
    }
  }

  GatedRing& ring_;
  std::uint32_t next_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

void contract(const Bench& bench) {
  for (const DeviceCase& each : device_contract()) {
    const TimePoint start = Clock::now();
    Row row;
    row.add("case", each.name);
    try {
      each.run(bench.device);
      row.add("holds", true);
    } catch (const Error& error) {
      row.add("holds", false).add("failed", error.what());
    }
    row.add("seconds", since(start)).print();
  }
}

void print_correctness(Device& device, const char* name, const StagingOptions& options,
                       const std::vector<std::size_t>& sizes, unsigned num_threads) {
  const TimePoint start = Clock::now();
  const RoundTrips found = run_round_trips(device, options, sizes, num_threads);
  std::size_t total = 0;
  for (const std::size_t size : sizes) total += size;
  Row()
      .add("tensors", name)
      .add("count", sizes.size())
      .add("mebibytes", static_cast<double>(total) / kMebibyte)
      .add("slot_mebibytes", static_cast<double>(options.ring.slot_bytes) / kMebibyte)
      .add("slots", options.ring.num_slots)
      .add("threads", num_threads)
      .add("wrong_words_at_host", found.wrong_words_at_host)
      .add("wrong_words_at_device", found.wrong_words_at_device)
      .add("seconds", since(start))
      .print();
}

void correctness(const Bench& bench) {
  const std::size_t total = bench.total_bytes;
  const std::vector<std::size_t> mixed{1,
                                       1000,
                                       kMebibyte / 2,
                                       total / 64 + 4,
                                       total / 16 + 3,
                                       total / 128 - 1,
                                       total / 8 + 1,
                                       total / 64};
  for (const std::size_t slot_bytes : kSlotBytes) {
    for (const std::uint32_t num_slots : {1U, 2U, 8U}) {
      print_correctness(bench.device, "mixed", options_of(slot_bytes, num_slots), mixed, 4);
    }
  }
  std::mt19937_64 random(1);
  std::vector<std::size_t> small;
  for (int i = 0; i < 1000; ++i) small.push_back(1 + random() % (total / 4096));
  for (const unsigned num_threads : {1U, 4U}) {
    print_correctness(bench.device, "small", options_of(kMebibyte / 2, 8), small, num_threads);
  }
  // More chunks than may be ahead, if it is large: the caller waits for room.
  print_correctness(bench.device, "long", options_of(kMebibyte / 2, 8), {total}, 6);
}

struct BothWays {
  double to_host = 0;
  double to_device = 0;
};

/// Measures the rates of the copy engines alone, in both directions at once, with eight slots each.
BothWays copy_rates(const Bench& bench, const StagedTensors& tensors, std::size_t chunk) {
  Device& device = bench.device;
  constexpr std::size_t kRing = 8;
  PinnedMemory ring(device, 2 * kRing * chunk);
  const OwnedEvent down(device, device.make_event());
  const OwnedEvent up(device, device.make_event());
  const TimePoint start = Clock::now();
  for (std::size_t at = 0; at < bench.total_bytes; at += chunk) {
    std::byte* slot = ring.bytes().data() + at / chunk % kRing * chunk;
    device.copy_to_host(tensors.before(), slot, tensors.source(0) + at, chunk);
    device.copy_to_device(tensors.after(), tensors.source(0) + at, slot + kRing * chunk, chunk);
  }
  device.record(tensors.before(), down.get());
  device.record(tensors.after(), up.get());
  BothWays found;
  while (found.to_host == 0 || found.to_device == 0) {
    const double rate = gigabytes_per_second(bench.total_bytes, since(start));
    if (found.to_host == 0 && device.is_done(down.get())) found.to_host = rate;
    if (found.to_device == 0 && device.is_done(up.get())) found.to_device = rate;
  }
  return found;
}

/// Returns the seconds from submit() until a tensor is done. `enqueued` gets those of submit()
/// alone.
double round_trip(Device& device, const StagedTensors& tensors, Staging& staging,
                  std::size_t num_bytes, double* enqueued = nullptr) {
  const TimePoint start = Clock::now();
  const Transfer transfer = staging.plan({{num_bytes, tensors.source(0), tensors.target(0)}});
  staging.submit(transfer, tensors.before());
  if (enqueued != nullptr) *enqueued = since(start);
  staging.wait(tensors.after(), transfer);
  device.synchronize(tensors.after());
  return since(start);
}

void print_rates(const Bench& bench, const StagedTensors& tensors, std::size_t slot_bytes,
                 std::uint32_t num_slots) {
  std::vector<double> to_host;
  std::vector<double> to_device;
  std::vector<double> loop;
  std::vector<double> enqueueing;
  Staging staging(bench.device, options_of(slot_bytes, num_slots));
  const Relay relay(staging.ring());
  // As many chunks as fit without waiting for room.
  const std::size_t few = std::min<std::size_t>(32, bench.total_bytes / slot_bytes);
  for (int i = 0; i <= kRepeats; ++i) {
    const BothWays alone = copy_rates(bench, tensors, slot_bytes);
    const double time = round_trip(bench.device, tensors, staging, bench.total_bytes);
    double enqueued = 0;
    round_trip(bench.device, tensors, staging, few * slot_bytes, &enqueued);
    if (i == 0) continue;  // to warm up
    to_host.push_back(alone.to_host);
    to_device.push_back(alone.to_device);
    loop.push_back(gigabytes_per_second(bench.total_bytes, time));
    enqueueing.push_back(enqueued / static_cast<double>(few));
  }
  Row()
      .add("slot_mebibytes", static_cast<double>(slot_bytes) / kMebibyte)
      .add("slots", num_slots)
      .add("copy_engines_to_host_gigabytes_per_second", median(to_host))
      .add("copy_engines_to_device_gigabytes_per_second", median(to_device))
      .add("staging_gigabytes_per_second", median(loop))
      .add("share", median(loop) / std::min(median(to_host), median(to_device)))
      .add("enqueue_microseconds_per_chunk", median(enqueueing) * 1e6)
      .print();
}

void rates(const Bench& bench) {
  const StagedTensors tensors(bench.device, {bench.total_bytes});
  for (const std::size_t slot_bytes : kSlotBytes) {
    for (const std::uint32_t num_slots : {4U, 8U, 16U}) {
      print_rates(bench, tensors, slot_bytes, num_slots);
    }
  }
}

/// For several processes at once.
void sharing(const Bench& bench) {
  const std::vector<std::size_t> sizes{bench.total_bytes / 8 + 1, 1000, bench.total_bytes / 4};
  print_correctness(bench.device, "mixed", options_of(kMebibyte, 8), sizes, 1);
  const StagedTensors tensors(bench.device, {bench.total_bytes});
  print_rates(bench, tensors, 4 * kMebibyte, 8);
  print_rates(bench, tensors, kMebibyte, 8);
}

void print_latency(const Bench& bench, const StagedTensors& tensors, Staging& staging,
                   std::size_t num_bytes) {
  constexpr int kRounds = 30;
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    times.push_back(round_trip(bench.device, tensors, staging, num_bytes));
  }
  Row()
      .add("bytes", num_bytes)
      .add("slot_mebibytes", staging.ring().shape().slot_bytes / kMebibyte)
      .add("round_trip_microseconds", median(times) * 1e6)
      .add("slowest_microseconds", *std::ranges::max_element(times) * 1e6)
      .print();
}

void latency(const Bench& bench) {
  const StagedTensors tensors(bench.device, {bench.total_bytes});
  for (const std::size_t slot_bytes : {kMebibyte, 4 * kMebibyte}) {
    Staging staging(bench.device, options_of(slot_bytes, 8));
    const Relay relay(staging.ring());
    for (const std::size_t num_bytes : {4 * kKibibyte, 64 * kKibibyte, kMebibyte, 4 * kMebibyte,
                                        16 * kMebibyte, bench.total_bytes}) {
      if (num_bytes <= bench.total_bytes) print_latency(bench, tensors, staging, num_bytes);
    }
  }
}

/// Opens the ring during a transfer that no engine handles, and measures the time until all is
/// done.
void print_opening(const Bench& bench, const StagedTensors& tensors, std::size_t num_bytes) {
  Staging* opened = nullptr;
  TimePoint open_at;
  const auto open = [&] {
    open_at = Clock::now();
    opened->ring().open();
  };
  StagingOptions options = options_of(kMebibyte, 8);
  int num_times_full = 0;
  options.while_full = [&] {
    std::this_thread::sleep_for(1ms);
    if (++num_times_full == 20) open();
  };
  auto staging = std::make_unique<Staging>(bench.device, options);
  opened = staging.get();
  std::string error;
  try {
    staging->submit(staging->plan({{num_bytes, tensors.source(0), tensors.target(0)}}),
                    tensors.before());
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  if (!staging->ring().is_open()) open();
  staging.reset();  // blocks until the device is done with it
  Row()
      .add("opened", num_times_full > 0 ? "while the caller waits for room" : "after submit")
      .add("mebibytes", num_bytes / kMebibyte)
      .add("milliseconds_until_all_is_over", since(open_at) * 1e3)
      .add("error_of_submit", error)
      .print();
}

void print_region_costs(const Bench& bench) {
  const TimePoint start = Clock::now();
  auto staging = std::make_unique<Staging>(bench.device, options_of(4 * kMebibyte, 16));
  const double made = since(start);
  const TimePoint begin = Clock::now();
  staging.reset();
  Row()
      .add("staging_of_mebibytes", 64)
      .add("milliseconds_to_make", made * 1e3)
      .add("milliseconds_to_end", since(begin) * 1e3)
      .print();
}

void trouble(const Bench& bench) {
  const StagedTensors tensors(bench.device, {2 * bench.total_bytes});
  print_opening(bench, tensors, bench.total_bytes / 4);
  print_opening(bench, tensors, 2 * bench.total_bytes);
  for (int i = 0; i < 3; ++i) print_region_costs(bench);
}

struct Part {
  std::string_view name;
  void (*run)(const Bench& bench);
};
constexpr std::array kParts{
    Part{"contract", contract}, Part{"correctness", correctness}, Part{"rates", rates},
    Part{"latency", latency},   Part{"trouble", trouble},         Part{"sharing", sharing},
};

int run(const std::string& name, const std::string& library, std::size_t mebibytes) {
  const auto found = std::ranges::find(kParts, name, &Part::name);
  if (found == kParts.end()) {
    std::cerr << "there is no part " << name << "\n";
    return 2;
  }
  CudaDevice device{CudaDriver(library)};
  Row().add("device", device.describe()).print();
  found->run({device, mebibytes * kMebibyte});
  return 0;
}

}  // namespace
}  // namespace slipstream::test

int main(int count, char** arguments) {
  using namespace slipstream;
  if (count < 2 || count > 4) {
    std::cerr << "usage: staging PART [LIBRARY [MEBIBYTES]]\n";
    return 2;
  }
  try {
    const std::string library = count > 2 ? arguments[2] : CudaDriver::kLibrary;
    const std::size_t mebibytes = count > 3 ? std::stoul(arguments[3]) : test::kTotalMebibytes;
    return test::run(arguments[1], library, mebibytes);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
