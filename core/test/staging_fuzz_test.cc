#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "device/fake/fake_device.h"
#include "device/staging.h"
#include "test/staging_world.h"

// Staging under thousands of schedules. One thread plays the caller, the engine and the device,
// step by step, in an order that depends on the seed only. In some runs one of them fails.
namespace slipstream::test {
namespace {

constexpr std::uint64_t kNumSeeds = 4000;

enum class Trouble : std::uint8_t {
  kNone,
  kNan,      ///< operations fail; the engine releases NaN
  kOpen,     ///< the engine opens the ring and stops
  kCall,     ///< a call of the device fails
  kCommand,  ///< a command of the device is a fault
};

struct Scenario {
  FakeDeviceOptions device;
  StagingOptions staging;
  std::vector<std::size_t> sizes;
  Trouble trouble = Trouble::kNone;
  std::size_t trouble_after = 0;  ///< number of the call or command of the device
  std::size_t haste = 0;          ///< steps of engine and device before each call, at most
};

Scenario draw(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  Scenario drawn;
  drawn.device = {.threads = false, .seed = seed, .one_queue = below(5) == 0};
  drawn.device.memory_bytes = 4 << 20;
  const std::uint32_t num_slots = 1U << below(4);
  const std::uint32_t ends[] = {0, 0x7fff'ffff, 0xffff'ffff};
  drawn.staging.ring = {.num_slots = num_slots,
                        .slot_bytes = 4096,
                        .first_sequence = ends[below(3)] - static_cast<std::uint32_t>(below(20))};
  drawn.staging.max_chunks_ahead = num_slots + 1 + static_cast<std::uint32_t>(below(12));
  drawn.staging.allow_small_slots = true;
  for (std::uint64_t count = 1 + below(5); count > 0; --count) {
    drawn.sizes.push_back(1 + below(below(3) == 0 ? 10 * 4096 : 3 * 4096));
  }
  constexpr std::array kTroubles{Trouble::kNone, Trouble::kNone, Trouble::kNan,
                                 Trouble::kOpen, Trouble::kCall, Trouble::kCommand};
  drawn.trouble = kTroubles.at(below(kTroubles.size()));
  drawn.trouble_after = 1 + below(150);
  drawn.haste = below(6);
  return drawn;
}

/// One run of a scenario.
class FuzzRun {
 public:
  explicit FuzzRun(std::uint64_t seed) : scenario_(draw(seed)), random_(seed) {
    FakeDeviceOptions options = scenario_.device;
    options.before_call = [this] { meanwhile(); };
    if (scenario_.trouble == Trouble::kCall) options.failing_call = scenario_.trouble_after;
    if (scenario_.trouble == Trouble::kCommand) options.failing_command = scenario_.trouble_after;
    device_ = std::make_unique<FakeDevice>(options);
  }

  void run() {
    try {
      play();
    } catch (const Error& error) {
      check_error(error);
    }
    for (const std::string& fault : device_->faults()) {
      EXPECT_TRUE(scenario_.trouble == Trouble::kCommand) << fault;
    }
    EXPECT_EQ(device_->counts().made_while_waiting, 0U);
    // One more is the first wait of a transfer whose first chunk has no room yet.
    EXPECT_LE(device_->counts().deepest_queue, 4U * scenario_.staging.max_chunks_ahead + 1);
  }

 private:
  void play() {
    StagedTensors tensors(*device_, scenario_.sizes);
    StagingOptions options = scenario_.staging;
    options.while_full = [this] { expect_progress("the caller waits for room"); };
    Staging staging(*device_, options);
    StagedEngine engine(staging.ring());
    staging_ = &staging;
    engine_ = &engine;
    std::vector<Transfer> transfers;
    try {
      for (std::size_t i = 0; i < tensors.count(); ++i) {
        tensors.compute(i);
        transfers.push_back(tensors.send(i, staging, engine));
      }
      while (!device_->describe_queues().empty()) expect_progress("a stream is not empty");
      check(tensors, transfers);
    } catch (...) {
      staging_ = nullptr;
      engine_ = nullptr;
      throw;
    }
    staging_ = nullptr;
    engine_ = nullptr;
  }

  /// Lets engine and device do some steps before a call of the device.
  void meanwhile() {
    if (engine_ == nullptr) return;
    if (++num_calls_ == scenario_.trouble_after) make_trouble();
    for (std::uint64_t left = random_() % (scenario_.haste + 1); left > 0; --left) advance();
  }

  void make_trouble() {
    if (scenario_.trouble == Trouble::kNan) engine_->fail_operations();
    if (scenario_.trouble != Trouble::kOpen) return;
    engine_->stop();
    staging_->ring().open();
  }

  bool advance() {
    if (random_() % 2 == 0) return device_->step() || engine_->turn(random_);
    return engine_->turn(random_) || device_->step();
  }

  void expect_progress(const char* who) {
    const bool has_advanced = advance();
    for (const std::string& fault : device_->faults()) fail(ErrorKind::kInternal, fault);
    expect(has_advanced, "progress while ", who, ":\n", device_->describe_queues());
  }

  void check(StagedTensors& tensors, const std::vector<Transfer>& transfers) {
    for (const Transfer& transfer : transfers) EXPECT_TRUE(staging_->is_done(transfer));
    EXPECT_EQ(engine_->num_wrong_words(), 0U);
    if (staging_->ring().is_open()) return;  // results are undefined
    EXPECT_EQ(engine_->num_unfinished(), 0U);
    for (std::size_t i = 0; i < transfers.size(); ++i) check(tensors, i, transfers[i]);
  }

  void check(StagedTensors& tensors, std::size_t index, const Transfer& transfer) {
    const std::size_t slot = scenario_.staging.ring.slot_bytes;
    for (std::uint32_t chunk = 0; chunk < transfer.num_chunks; ++chunk) {
      const std::size_t offset = chunk * slot;
      const auto bytes = tensors.result(index).subspan(offset, transfer.width_of(0, chunk));
      if (engine_->is_nan(transfer.first + chunk)) {
        EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0xff}; }));
      } else {
        EXPECT_EQ(wrong_words(bytes, result_seed(StagedTensors::seed(index)), offset / 4), 0U)
            << "tensor " << index << ", chunk " << chunk;
      }
    }
  }

  /// Checks that the error is the one that the scenario causes.
  void check_error(const Error& error) {
    const std::string text = error.what();
    const bool device_failed =
        scenario_.trouble == Trouble::kCall || scenario_.trouble == Trouble::kCommand;
    const bool is_opened = scenario_.trouble == Trouble::kOpen;
    EXPECT_TRUE((device_failed && text.find("was told to") != text.npos) ||
                (is_opened && text.find("create a new group") != text.npos))
        << text;
  }

  Scenario scenario_;
  std::mt19937_64 random_;
  std::unique_ptr<FakeDevice> device_;
  Staging* staging_ = nullptr;
  StagedEngine* engine_ = nullptr;
  std::size_t num_calls_ = 0;  ///< since the engine is there
};

TEST(StagingFuzz, EveryScheduleEndsAndIsRight) {
  for (std::uint64_t seed = 1; seed <= kNumSeeds; ++seed) {
    FuzzRun(seed).run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(StagingFuzz, ThreadsInEverySpeedEndAndAreRight) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Scenario drawn = draw(seed);
    FakeDevice device(
        {.seed = seed, .longest_delay = Nanoseconds((seed % 4) * 10'000), .memory_bytes = 4 << 20});
    const auto num_threads = static_cast<unsigned>(1 + seed % 3);
    const RoundTrips found = run_round_trips(device, drawn.staging, drawn.sizes, num_threads);
    EXPECT_EQ(found.wrong_words_at_host + found.wrong_words_at_device, 0U);
    EXPECT_TRUE(device.faults().empty());
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(StagingFuzz, RingsThatOpenAtAnyTimeFreeAllThreads) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Scenario drawn = draw(seed);
    FakeDevice device({.seed = seed, .longest_delay = 10us, .memory_bytes = 4 << 20});
    StagedTensors tensors(device, drawn.sizes);
    Staging staging(device, drawn.staging);
    StagedEngine engine(staging.ring());
    const EngineThreads threads(engine, 2, seed);
    std::thread failing([&] {
      std::this_thread::sleep_for(Nanoseconds(seed * 20'000));
      engine.stop();
      staging.ring().open();
    });
    try {
      for (std::size_t i = 0; i < tensors.count(); ++i) {
        tensors.compute(i);
        tensors.send(i, staging, engine);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kAborted) << error.what();
    }
    failing.join();
    tensors.synchronize();
    EXPECT_EQ(engine.num_wrong_words(), 0U);
    EXPECT_TRUE(device.faults().empty());
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace slipstream::test
