#include "gate/gated_ring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "base/memory.h"
#include "gate/engine_thread.h"
#include "slipstream/error.h"

namespace slipstream::test {
namespace {

/// A ring in memory of its own; the test plays the device.
struct OwnRing {
  explicit OwnRing(const RingShape& shape)
      : fd(make_memory_fd("slipstream-test", GatedRing::bytes_for(shape))),
        mapping(fd.get(), GatedRing::bytes_for(shape)),
        ring({mapping.data(), mapping.size()}, shape) {}

  void write_in(std::uint32_t sequence) {
    ring.gate(sequence).in.value.store(sequence, std::memory_order_release);
  }
  /// Whether a device that waits for the chunk's way back goes on.
  bool passes(std::uint32_t sequence) {
    return reached(ring.gate(sequence).out.value.load(std::memory_order_acquire), sequence);
  }

  Descriptor fd;
  SharedMapping mapping;
  GatedRing ring;
};

RingShape small(std::uint32_t first_sequence = 1) {
  return {.num_slots = 4, .slot_bytes = 4096, .first_sequence = first_sequence};
}

TEST(GatedRing, ComparesAsCountersThatWrap) {
  EXPECT_TRUE(reached(0, 0xffff'ffff));
  EXPECT_TRUE(reached(0x7fff'fffe, 0xffff'ffff));
  EXPECT_FALSE(reached(0x7fff'ffff, 0xffff'ffff));
  EXPECT_FALSE(reached(0xffff'ffff, 0));
}

TEST(GatedRing, FlagsAreAloneOnTheirCacheLines) {
  OwnRing own(small());
  for (std::uint32_t i = 0; i < 4; ++i) {
    const Gate& gate = own.ring.gate(i);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&gate.in) % kCacheLineBytes, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&gate.out) % kCacheLineBytes, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(own.ring.slot(i).data()) % 4096, 0U);
  }
}

TEST(GatedRing, CountsAcrossTheEndOfTheNumbers) {
  for (const std::uint32_t first : {1U, 0U, 0xffff'fff9U, 0x7fff'fffaU}) {
    OwnRing own(small(first));
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint32_t sequence = first + i;
      EXPECT_FALSE(own.ring.ready(sequence)) << sequence;
      EXPECT_FALSE(own.passes(sequence)) << sequence;
      own.write_in(sequence);
      EXPECT_TRUE(own.ring.ready(sequence)) << sequence;
      EXPECT_FALSE(own.ring.ready(sequence + 4)) << "the next chunk of the slot";
      own.ring.release(sequence);
      EXPECT_TRUE(own.passes(sequence)) << sequence;
      EXPECT_FALSE(own.passes(sequence + 4)) << "the next chunk of the slot";
    }
  }
}

TEST(GatedRing, NeighboursHaveSlotsOfTheirOwnAcrossTheEnd) {
  OwnRing own(small());
  EXPECT_EQ(own.ring.slot(0).data(), own.ring.slot(0xffff'fffc).data());
  EXPECT_NE(own.ring.slot(0).data(), own.ring.slot(0xffff'ffff).data());
}

TEST(GatedRing, OnceOpenItHoldsNothingAndStaysOpen) {
  for (const std::uint32_t first : {1U, 0xffff'fff0U, 0x3fff'fff0U}) {
    OwnRing own(small(first));
    own.ring.release(first);
    own.ring.open();
    own.ring.open();
    own.ring.release(first + 1);  // of a thread that has not seen it yet
    for (const std::uint32_t ahead : {0U, 1U, 4U, 5U, 1000U, 1'000'000U}) {
      EXPECT_TRUE(own.passes(first + ahead)) << ahead;
    }
    EXPECT_TRUE(own.ring.is_open());
  }
}

TEST(GatedRing, ReleasesAndOpeningMayRace) {
  for (int round = 0; round < 200; ++round) {
    OwnRing own(small());
    std::thread releasing([&] {
      for (std::uint32_t i = 1; i <= 4; ++i) own.ring.release(i);
    });
    std::thread opening([&] { own.ring.open(); });
    releasing.join();
    opening.join();
    for (std::uint32_t i = 1; i <= 16; ++i) EXPECT_TRUE(own.passes(i));
  }
}

TEST(GatedRing, SpoiledChunksAreNan) {
  OwnRing own(small());
  own.write_in(1);
  own.ring.release_nan(1, 8);
  float value = 0;
  std::memcpy(&value, own.ring.slot(1).data() + 4, sizeof value);
  EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(own.ring.slot(1)[8], std::byte{0});
  EXPECT_TRUE(own.passes(1));
}

TEST(GatedRing, RefusesShapesThatCannotWrap) {
  const auto kind_of = [](const RingShape& shape) {
    try {
      GatedRing::bytes_for(shape);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kInternal;
  };
  EXPECT_EQ(kind_of({.num_slots = 6, .slot_bytes = 4096}), ErrorKind::kUsage);
  EXPECT_EQ(kind_of({.num_slots = 0, .slot_bytes = 4096}), ErrorKind::kUsage);
  EXPECT_EQ(kind_of({.num_slots = 8, .slot_bytes = 1000}), ErrorKind::kUsage);
  EXPECT_EQ(kind_of({.num_slots = 8, .slot_bytes = 0}), ErrorKind::kUsage);
}

TEST(EngineThread, IsOneWhileItsMarkLives) {
  EXPECT_NO_THROW(EngineThread::refuse("record"));
  {
    const EngineThread driving;
    {
      const EngineThread again;
      EXPECT_TRUE(EngineThread::is_here());
    }
    EXPECT_THROW(EngineThread::refuse("record"), Error);
    std::thread([] { EXPECT_FALSE(EngineThread::is_here()); }).join();
  }
  EXPECT_FALSE(EngineThread::is_here());
}

}  // namespace
}  // namespace slipstream::test
