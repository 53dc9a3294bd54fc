// Tests of the rings of the shared-memory transport alone: order under two threads, waking, and
// impossible values from a broken process.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/doorbell.h"
#include "test/transport_world.h"
#include "transport/shm/ring.h"

namespace slipstream::test {
namespace {

constexpr std::uint32_t kCapacity = 100;

// A ring in ordinary memory, which is enough for two threads.
struct TestRing {
  explicit TestRing(std::uint32_t num_slots) : slots(std::size_t{num_slots} * kSlotBytes) {
    ring = {&state, slots.data(), num_slots, kSlotBytes, kCapacity};
  }
  static constexpr std::uint32_t kSlotBytes = sizeof(Frame) + 128;
  RingState state;
  std::vector<std::byte> slots;
  Ring ring;
};

Frame numbered(std::uint64_t number, std::uint32_t length) {
  return {.kind = FrameKind::kSegment, .length = length, .sequence = number};
}

std::vector<std::byte> bytes_of(std::uint64_t number) {
  return std::vector<std::byte>(number % (kCapacity + 1), static_cast<std::byte>(number));
}

bool take(RingConsumer& consumer, RingConsumer::Item& item) {
  if (!consumer.front(item)) return false;
  consumer.next();
  return true;
}

TEST(ShmRing, TakesAsManyFramesAsItHasSlotsAndGivesThemInOrder) {
  for (const std::uint32_t num_slots : {1U, 2U, 3U, 64U}) {
    TestRing shared(num_slots);
    RingProducer producer(shared.ring);
    RingConsumer consumer(shared.ring);
    RingConsumer::Item item;
    std::uint64_t next = 0;
    for (std::uint64_t number = 0; number < 200;) {
      while (producer.push(numbered(number, 0), {})) ++number;
      for (std::uint32_t count = 0; count < num_slots; ++count) {
        ASSERT_TRUE(take(consumer, item));
        EXPECT_EQ(item.frame.sequence, next++);
      }
      EXPECT_FALSE(consumer.front(item));
      EXPECT_TRUE(consumer.free()) << "the producer was told no, and waits";
    }
  }
}

TEST(ShmRing, ASlotIsNotOverwrittenBeforeItIsFreed) {
  TestRing shared(2);
  RingProducer producer(shared.ring);
  RingConsumer consumer(shared.ring);
  RingConsumer::Item item;
  ASSERT_TRUE(producer.push(numbered(1, 3), bytes_of(3)));
  ASSERT_TRUE(producer.push(numbered(2, 0), {}));
  ASSERT_TRUE(take(consumer, item));
  EXPECT_FALSE(producer.push(numbered(3, 0), {}));
  EXPECT_EQ(item.payload[2], std::byte{3});
  EXPECT_TRUE(consumer.free());
  EXPECT_TRUE(producer.push(numbered(3, 0), {}));
  EXPECT_FALSE(consumer.free()) << "the producer has seen room and waits no longer";
}

TEST(ShmRing, CarriesFramesBetweenTwoThreadsThatSleepWhenTheyMust) {
  constexpr std::uint64_t kFrames = 20'000;
  TestRing shared(3);
  Doorbell producer_bell;
  Doorbell consumer_bell;
  // Waits as the engine does: arm, look once more, sleep. A timeout is a failure, not a fallback.
  const auto wait = [](Doorbell& bell, const std::function<bool()>& ready) {
    while (!ready()) {
      bell.arm(false);
      if (ready()) return bell.disarm();
      const TimePoint until = Clock::now() + kPatience;
      bell.sleep(until);
      ASSERT_LT(Clock::now(), until) << "nobody rang";
    }
  };
  std::thread producing([&] {
    RingProducer producer(shared.ring);
    for (std::uint64_t number = 0; number < kFrames; ++number) {
      const std::vector<std::byte> payload = bytes_of(number);
      const Frame frame = numbered(number, static_cast<std::uint32_t>(payload.size()));
      wait(producer_bell, [&] { return producer.ready(); });
      ASSERT_TRUE(producer.push(frame, payload));
      consumer_bell.bell().ring();
    }
    EXPECT_EQ(producer.fault(), "");
  });
  RingConsumer consumer(shared.ring);
  for (std::uint64_t number = 0; number < kFrames; ++number) {
    RingConsumer::Item item;
    wait(consumer_bell, [&] { return consumer.front(item); });
    ASSERT_EQ(item.frame.sequence, number);
    const std::vector<std::byte> expected = bytes_of(number);
    ASSERT_TRUE(std::ranges::equal(item.payload, expected));
    consumer.next();
    if (consumer.free()) producer_bell.bell().ring();
  }
  producing.join();
  EXPECT_EQ(consumer.fault(), "");
}

struct Damage {
  const char* name;
  std::function<void(TestRing&)> inflict;
  const char* said;
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class ShmRingDamage : public testing::TestWithParam<Damage> {};

TEST_P(ShmRingDamage, IsNoticedByTheConsumerAndNothingIsDelivered) {
  TestRing shared(4);
  RingProducer producer(shared.ring);
  RingConsumer consumer(shared.ring);
  RingConsumer::Item item;
  ASSERT_TRUE(producer.push(numbered(0, 5), bytes_of(5)));
  ASSERT_TRUE(take(consumer, item));
  ASSERT_TRUE(producer.push(numbered(1, 5), bytes_of(5)));
  GetParam().inflict(shared);
  EXPECT_FALSE(consumer.front(item));
  EXPECT_NE(consumer.fault().find(GetParam().said), std::string::npos) << consumer.fault();
  // The fault stays, even if the damage is undone.
  shared.state.produced = 2;
  EXPECT_FALSE(consumer.front(item));
}

Frame* frame_in(TestRing& shared, std::size_t slot) {
  return reinterpret_cast<Frame*>(shared.slots.data() + slot * TestRing::kSlotBytes);
}

// The first byte of a frame.
std::byte& kind_in(TestRing& shared, std::size_t slot) {
  return shared.slots[slot * TestRing::kSlotBytes];
}

INSTANTIATE_TEST_SUITE_P(
    All, ShmRingDamage,
    testing::Values(
        Damage{"Overtaken", [](TestRing& shared) { shared.state.produced = 6; }, "put 6 frames"},
        Damage{"Backwards", [](TestRing& shared) { shared.state.produced = 0; }, "put 0 frames"},
        Damage{"Huge", [](TestRing& shared) { shared.state.produced = ~0ULL; }, "put 1844674407"},
        Damage{"TooLong", [](TestRing& shared) { frame_in(shared, 1)->length = kCapacity + 1; },
               "with 101 bytes"},
        Damage{"NoKind", [](TestRing& shared) { kind_in(shared, 1) = std::byte{0}; }, "kind 0"},
        Damage{"UnknownKind", [](TestRing& shared) { kind_in(shared, 1) = std::byte{99}; },
               "kind 99"}),
    [](const auto& parameter) { return parameter.param.name; });

TEST(ShmRing, AProducerNoticesPositionsThatCannotBe) {
  for (const std::uint64_t consumed : {3ULL, ~0ULL}) {
    TestRing shared(2);
    RingProducer producer(shared.ring);
    ASSERT_TRUE(producer.push(numbered(0, 0), {}));
    ASSERT_TRUE(producer.push(numbered(1, 0), {}));
    shared.state.consumed = consumed;
    EXPECT_FALSE(producer.ready());
    EXPECT_FALSE(producer.push(numbered(2, 0), {}));
    EXPECT_NE(producer.fault().find("possible: 0 to 2"), std::string::npos) << producer.fault();
  }
}

}  // namespace
}  // namespace slipstream::test
