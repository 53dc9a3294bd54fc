#include "device/staging.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/fake/fake_device.h"
#include "gate/engine_thread.h"
#include "test/staging_world.h"

namespace slipstream::test {
namespace {

StagingOptions small(std::uint32_t num_slots = 4, std::uint32_t max_chunks_ahead = 16) {
  return {.ring = {.num_slots = num_slots, .slot_bytes = 4096},
          .max_chunks_ahead = max_chunks_ahead,
          .allow_small_slots = true};
}

/// A device that does nothing but by step(), staging, and an engine that does nothing but by
/// turn().
struct SteppedStaging {
  explicit SteppedStaging(std::vector<std::size_t> sizes, StagingOptions options = small(),
                          FakeDeviceOptions device_options = {})
      : device(stepped(std::move(device_options))),
        tensors(device, std::move(sizes)),
        staging(device, advancing(std::move(options))),
        engine(staging.ring()) {}

  static FakeDeviceOptions stepped(FakeDeviceOptions options) {
    options.threads = false;
    return options;
  }
  StagingOptions advancing(StagingOptions options) {
    options.while_full = [this] {
      ++num_times_full;
      if (on_full) on_full();
      expect(advance(), "something to go on while the caller waits:\n", device.describe_queues());
    };
    return options;
  }
  /// Lets the device, or else the engine, do one thing. False if neither can.
  bool advance() { return device.step() || engine.turn(random); }
  void step_all() {
    while (device.step()) {
    }
  }
  Transfer send(std::size_t index) {
    tensors.compute(index);
    return tensors.send(index, staging, engine);
  }
  void finish() {
    while (advance()) {
    }
  }
  void expect_right() {
    EXPECT_EQ(engine.num_unfinished(), 0U);
    EXPECT_EQ(engine.num_wrong_words(), 0U);
    for (std::size_t i = 0; i < tensors.count(); ++i) {
      EXPECT_EQ(wrong_words(tensors.result(i), result_seed(StagedTensors::seed(i))), 0U) << i;
    }
    EXPECT_TRUE(device.faults().empty());
    EXPECT_EQ(device.counts().made_while_waiting, 0U);
  }

  std::mt19937_64 random{1};
  std::size_t num_times_full = 0;
  std::function<void()> on_full;
  FakeDevice device;
  StagedTensors tensors;
  Staging staging;
  StagedEngine engine;
};

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Staging, TensorsOfEverySizeComeBack) {
  const std::vector<std::size_t> sizes{1, 3, 4, 4095, 4096, 4097, 8192, 16'384, 20'001, 65'536};
  SteppedStaging stepped(sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) stepped.send(i);
  stepped.finish();
  stepped.expect_right();
}

TEST(Staging, AnEmptyTensorIsDoneAtOnce) {
  SteppedStaging stepped({4096});
  const Transfer transfer = stepped.staging.plan({{0}});
  stepped.staging.submit(transfer, stepped.tensors.before());
  EXPECT_TRUE(stepped.staging.is_done(transfer));
  stepped.staging.wait(stepped.tensors.after(), transfer);
  stepped.send(0);
  stepped.finish();
  stepped.expect_right();
}

TEST(Staging, TheRingFillsWhileTheEngineHasTheFirstChunk) {
  SteppedStaging stepped({40'960});
  const Transfer transfer = stepped.send(0);
  stepped.step_all();
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(stepped.staging.ring().ready(transfer.sequence + i)) << i;
  }
  EXPECT_FALSE(stepped.staging.ring().ready(transfer.sequence + 4)) << "its slot is taken";
  EXPECT_FALSE(stepped.staging.is_done(transfer));
  ASSERT_TRUE(stepped.engine.turn(stepped.random));
  stepped.finish();
  EXPECT_TRUE(stepped.staging.is_done(transfer));
  stepped.expect_right();
}

TEST(Staging, TheCallerWaitsWhenTooManyChunksAreAhead) {
  SteppedStaging stepped({100 * 4096, 100 * 4096}, small(4, 10));
  stepped.send(0);
  EXPECT_GT(stepped.num_times_full, 0U);
  EXPECT_LE(stepped.device.counts().deepest_queue, 4U * 10);
  const std::size_t before = stepped.num_times_full;
  stepped.finish();
  stepped.send(1);
  EXPECT_GT(stepped.num_times_full, before);
  stepped.finish();
  stepped.expect_right();
}

TEST(Staging, NobodyWaitsForOldTransfers) {
  SteppedStaging stepped({4096, 100 * 4096}, small(4, 10));
  const Transfer first = stepped.send(0);
  stepped.send(1);
  stepped.finish();
  // The event of the first transfer was recorded anew, by one that is back, too.
  EXPECT_TRUE(stepped.staging.is_done(first));
  const std::uint64_t calls = stepped.device.counts().calls;
  stepped.staging.wait(stepped.tensors.after(), first);
  EXPECT_EQ(stepped.device.counts().calls, calls);
}

TEST(Staging, ATransferIsNotDoneBeforeItIsEnqueued) {
  SteppedStaging stepped({100 * 4096}, small(4, 10));
  const Transfer transfer = stepped.staging.plan({{100 * 4096}});
  stepped.on_full = [&] { EXPECT_FALSE(stepped.staging.is_done(transfer)); };
  stepped.send(0);
  EXPECT_GT(stepped.num_times_full, 0U);
  stepped.finish();
  EXPECT_TRUE(stepped.staging.is_done(transfer));
}

TEST(Staging, SequencesWrap) {
  for (const std::uint32_t first : {0U, 0xffff'fff0U, 0x7fff'fff5U}) {
    StagingOptions options = small();
    options.ring.first_sequence = first;
    SteppedStaging stepped({20'000, 40'000, 60'000, 3}, options);
    for (std::size_t i = 0; i < 4; ++i) stepped.send(i);
    stepped.finish();
    stepped.expect_right();
  }
}

TEST(Staging, GoesThroughStreamsThatShareAQueue) {
  SteppedStaging stepped({40'960, 9, 12'288}, small(), {.one_queue = true});
  for (std::size_t i = 0; i < 3; ++i) stepped.send(i);
  stepped.finish();
  stepped.expect_right();
}

TEST(Staging, FillsTheRingBeforeTheFirstWaitEvenInASharedQueue) {
  SteppedStaging stepped({40'960}, small(), {.one_queue = true});
  const Transfer transfer = stepped.send(0);
  stepped.step_all();
  EXPECT_TRUE(stepped.staging.ring().ready(transfer.sequence + 3));
}

TEST(Staging, ThousandsOfChunksGoThroughASmallQueue) {
  StagingOptions options = small(2, 240);
  SteppedStaging stepped(std::vector<std::size_t>(1000, 9000), options, {.queue_depth = 1020});
  stepped.finish();
  for (std::size_t i = 0; i < stepped.tensors.count(); ++i) stepped.send(i);
  stepped.finish();
  stepped.expect_right();
}

TEST(Staging, AnOpenRingLetsTheDeviceFinishAndRefusesMore) {
  SteppedStaging stepped({40'960, 40'960});
  const Transfer transfer = stepped.send(0);
  stepped.step_all();
  stepped.staging.ring().open();
  stepped.step_all();
  EXPECT_TRUE(stepped.staging.is_done(transfer));
  EXPECT_TRUE(stepped.device.describe_queues().empty()) << stepped.device.describe_queues();
  const std::string error = error_of([&] { stepped.send(1); });
  EXPECT_NE(error.find("an earlier operation failed; create a new group"), std::string::npos);
}

TEST(Staging, AnOpenRingFreesACallerThatWaitsForRoom) {
  FakeDevice device;
  StagedTensors tensors(device, {100 * 4096});
  Staging* opened = nullptr;
  StagingOptions options = small(4, 10);
  std::size_t num_times_full = 0;
  options.while_full = [&] {
    if (++num_times_full == 10) opened->ring().open();
    std::this_thread::sleep_for(1ms);
  };
  Staging staging(device, options);
  opened = &staging;
  const std::string error =
      error_of([&] { staging.submit(staging.plan({tensors.row(0)}), tensors.before()); });
  EXPECT_GE(num_times_full, 10U) << "the caller did not wait";
  EXPECT_NE(error.find("create a new group"), std::string::npos) << error;
}

TEST(Staging, ADeviceThatFailsHalfWayOpensTheRing) {
  std::uint64_t first_call = 0;
  std::uint64_t last_call = 0;
  {
    SteppedStaging counting({20'000});
    first_call = counting.device.counts().calls + 1;
    const Transfer transfer = counting.staging.plan({counting.tensors.row(0)});
    counting.staging.submit(transfer, counting.tensors.before());
    last_call = counting.device.counts().calls;
  }
  EXPECT_EQ(last_call - first_call + 1, 3 + 5 * 5 + 1) << "one wait for the fifth chunk's slot";
  for (std::uint64_t call = first_call; call <= last_call; ++call) {
    SteppedStaging stepped({20'000}, small(), {.failing_call = call});
    const std::string error = error_of([&] {
      stepped.staging.submit(stepped.staging.plan({stepped.tensors.row(0)}),
                             stepped.tensors.before());
    });
    EXPECT_NE(error.find("was told to"), std::string::npos) << call << error;
    EXPECT_TRUE(stepped.staging.ring().is_open());
    EXPECT_FALSE(stepped.staging.is_done({.first = 0, .num_chunks = 5}));
    stepped.step_all();
    EXPECT_TRUE(stepped.device.describe_queues().empty()) << stepped.device.describe_queues();
  }
}

TEST(Staging, GoesWithoutHangingWhileTheDeviceWaits) {
  for (const bool threads : {false, true}) {
    FakeDevice device({.threads = threads});
    StagedTensors tensors(device, {40'960});
    {
      Staging staging(device, small());
      StagedEngine engine(staging.ring());
      tensors.compute(0);
      tensors.send(0, staging, engine);
    }
    tensors.synchronize();
    EXPECT_TRUE(device.faults().empty());
  }
}

TEST(Staging, TheEnginesThreadsMayNotSubmit) {
  SteppedStaging stepped({4096});
  const EngineThread engine;
  const std::string error =
      error_of([&] { stepped.tensors.send(0, stepped.staging, stepped.engine); });
  EXPECT_NE(error.find("was called by a thread of the engine"), std::string::npos) << error;
}

TEST(Staging, RefusesSlotsAndLimitsThatCannotWork) {
  FakeDevice device;
  const auto error_with = [&](StagingOptions options) {
    return error_of([&] { Staging(device, std::move(options)); });
  };
  EXPECT_NE(error_with({.ring = {.slot_bytes = 256 << 10}})
                .find("a slot must have 524288 to 4194304 bytes"),
            std::string::npos);
  EXPECT_NE(error_with({.ring = {.slot_bytes = 8 << 20}}).find("a slot must have"),
            std::string::npos);
  EXPECT_NE(error_with(small(8, 8)).find("max_chunks_ahead must exceed"), std::string::npos);
  EXPECT_NE(error_with(small(3, 8)).find("must be a power of two"), std::string::npos);
}

TEST(Staging, ThreadsOfTheDeviceAndOfTheEngineGetAllRight) {
  for (const unsigned num_threads : {1U, 3U}) {
    FakeDevice device({.seed = num_threads, .longest_delay = 20us});
    StagingOptions options = small(4, 12);
    options.ring.first_sequence = 0xffff'ffe0;
    const std::vector<std::size_t> sizes{1, 5000, 70'000, 4096, 33'333, 8192, 100'000};
    const RoundTrips found = run_round_trips(device, options, sizes, num_threads);
    EXPECT_EQ(found.wrong_words_at_host, 0U);
    EXPECT_EQ(found.wrong_words_at_device, 0U);
    EXPECT_TRUE(device.faults().empty());
    EXPECT_EQ(device.counts().made_while_waiting, 0U);
  }
}

}  // namespace
}  // namespace slipstream::test
