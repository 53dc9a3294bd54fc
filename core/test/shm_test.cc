// Tests of shared memory within one process: the contract of every transport, which peers may
// connect, and that a peer that breaks the rules can do no harm.

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/unix_socket.h"
#include "test/shm_world.h"
#include "test/transport_contract.h"

namespace slipstream::test {
namespace {

std::string family_name(const testing::TestParamInfo<TransportFamily>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportContract,
                         testing::Values(shm_family("Default", {}),
                                         shm_family("FewOddSlots", {.segment_bytes = 5001,
                                                                    .num_slots = 1,
                                                                    .eager_bytes = 333,
                                                                    .num_control_slots = 2})),
                         family_name);

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool any_contains(const std::vector<std::string>& lines, const std::string& part) {
  return std::ranges::any_of(lines, [&](const auto& line) { return contains(line, part); });
}

TEST(ShmTransport, DiallingWhereNobodyListensIsFalseAtOnce) {
  ShmRank rank(shm_identity(1, 2));
  EXPECT_FALSE(rank.transport.dial(0, "slipstream-00000000000000000000000000000000"));
  EXPECT_FALSE(rank.transport.dial(0, ""));
  EXPECT_FALSE(rank.transport.dial(0, std::string(1000, 'x')));
  ShmRank closed(shm_identity(0, 2));
  const std::string name = closed.transport.name();
  closed.transport.close();
  EXPECT_FALSE(rank.transport.dial(0, name));
  EXPECT_FALSE(rank.poll());
  EXPECT_TRUE(rank.refusals.empty());
}

TEST(ShmTransport, AnotherNetworkNamespaceIsOutOfReach) {
  ShmRank lower(shm_identity(0, 2));
  // In its own thread, because the network namespace ends with it.
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) GTEST_SKIP() << "needs root";
    ShmRank higher(shm_identity(1, 2));
    EXPECT_FALSE(higher.transport.dial(0, lower.transport.name()));
  }).join();
}

TEST(ShmTransport, NamesAreRandomAndOnlyHigherRanksDial) {
  const ShmRank first(shm_identity(0, 3));
  ShmRank second(shm_identity(1, 3));
  EXPECT_NE(first.transport.name(), second.transport.name());
  EXPECT_EQ(first.transport.name().size(), std::string("slipstream-").size() + 32);
  EXPECT_THROW(second.transport.dial(2, first.transport.name()), Error);
}

TEST(ShmTransport, SizesOutOfRangeAreAnErrorOfTheSettings) {
  Doorbell bell;
  for (const ShmOptions& options :
       {ShmOptions{.segment_bytes = 0}, ShmOptions{.segment_bytes = kMaxSegmentBytes + 1},
        ShmOptions{.num_slots = 0}, ShmOptions{.eager_bytes = kMaxSegmentBytes + 1},
        ShmOptions{.num_control_slots = 1}}) {
    try {
      const ShmTransport transport(shm_identity(0, 2), options, bell);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    }
  }
}

TEST(ShmTransport, AFrameThatNoSlotHoldsIsAnError) {
  const TransportWorld world(shm_family("Shm", {}), 2);
  const std::vector<std::byte> payload(ShmOptions{}.segment_bytes + 1);
  const Frame frame{.kind = FrameKind::kSegment,
                    .length = static_cast<std::uint32_t>(payload.size())};
  EXPECT_THROW(world[0].link(1).send(1, frame, payload), Error);
}

TEST(ShmTransport, RanksOfDifferentShapesRefuseEachOtherAndSayBoth) {
  ShmRank lower(shm_identity(0, 2), {.num_slots = 4});
  ShmRank higher(shm_identity(1, 2), {.num_slots = 5});
  ASSERT_TRUE(higher.transport.dial(0, lower.transport.name()));
  ASSERT_TRUE(poll_until({&lower, &higher},
                         [&] { return !lower.refusals.empty() && !higher.refusals.empty(); }));
  for (const std::string& reason : {lower.refusals[1], higher.refusals[0]}) {
    EXPECT_TRUE(contains(reason, "4 slots of 131072 bytes")) << reason;
    EXPECT_TRUE(contains(reason, "5 slots of 131072 bytes")) << reason;
  }
  EXPECT_TRUE(lower.links.empty() && higher.links.empty());
}

TEST(ShmTransport, ARankWithAnotherKeyIsRefusedLoggedAndDoesNoHarm) {
  ShmRank lower(shm_identity(0, 2));
  ShmRank stranger(shm_identity(1, 2, 99));
  ASSERT_TRUE(stranger.transport.dial(0, lower.transport.name()));
  ASSERT_TRUE(poll_until({&lower, &stranger},
                         [&] { return !stranger.refusals.empty() && !lower.log.empty(); }));
  EXPECT_TRUE(contains(stranger.refusals[0], "did not prove the job key"));
  EXPECT_TRUE(any_contains(lower.log, "process " + std::to_string(::getpid())));
  EXPECT_TRUE(lower.refusals.empty()) << "rank 1 was not refused, somebody else was";
  ShmRank higher(shm_identity(1, 2));
  ASSERT_TRUE(higher.transport.dial(0, lower.transport.name()));
  EXPECT_TRUE(poll_until({&lower, &higher},
                         [&] { return lower.links.contains(1) && higher.links.contains(0); }));
}

TEST(ShmTransport, GarbageAndSilenceOnTheSocketAreRefused) {
  ShmRank lower(shm_identity(0, 2), {.handshake_deadline = 50ms});
  const AbstractConnection silent = connect_abstract(lower.transport.name());
  const AbstractConnection loud = connect_abstract(lower.transport.name());
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(::send(loud.socket.get(), request.data(), request.size(), 0), ssize_t{18});
  ASSERT_TRUE(poll_until({&lower}, [&] { return lower.log.size() == 2; }));
  EXPECT_TRUE(any_contains(lower.log, "does not speak Slipstream's protocol"));
  EXPECT_TRUE(any_contains(lower.log, "sent nothing within"));
  EXPECT_TRUE(other_end_is_gone(silent.socket));
  EXPECT_TRUE(other_end_is_gone(loud.socket));
}

TEST(ShmTransport, AnotherUserIsRefusedBeforeAWordIsRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ShmRank lower(shm_identity(0, 2));
  ASSERT_EQ(::seteuid(65534), 0);
  const AbstractConnection connection = connect_abstract(lower.transport.name());
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_EQ(connection.error, 0);
  ASSERT_TRUE(poll_until({&lower}, [&] { return !lower.log.empty(); }));
  EXPECT_TRUE(any_contains(lower.log, "belongs to user 65534"));
  EXPECT_TRUE(other_end_is_gone(connection.socket));
}

TEST(ShmTransport, ASecondConnectionOfTheSameRankIsRefused) {
  ShmRank lower(shm_identity(0, 2));
  ShmRank higher(shm_identity(1, 2));
  ShmRank twin(shm_identity(1, 2));
  ASSERT_TRUE(higher.transport.dial(0, lower.transport.name()));
  ASSERT_TRUE(poll_until({&lower, &higher}, [&] { return higher.links.contains(0); }));
  ASSERT_TRUE(twin.transport.dial(0, lower.transport.name()));
  ASSERT_TRUE(poll_until({&lower, &higher, &twin}, [&] { return !twin.refusals.empty(); }));
  EXPECT_TRUE(contains(twin.refusals[0], "is or was connected already")) << twin.refusals[0];
  EXPECT_TRUE(lower.links[1]->alive(0));
  EXPECT_TRUE(lower.refusals.empty());
}

TEST(ShmTransport, SocketsAreLookedAtOftenWhilePeersMayDialAndSeldomAfterwards) {
  ShmRank lower(shm_identity(0, 2));
  ShmRank higher(shm_identity(1, 2));
  lower.poll();
  EXPECT_LE(lower.transport.next_event(), Clock::now() + 1ms);
  ASSERT_TRUE(higher.transport.dial(0, lower.transport.name()));
  ASSERT_TRUE(poll_until({&lower, &higher},
                         [&] { return lower.links.contains(1) && higher.links.contains(0); }));
  EXPECT_GT(lower.transport.next_event(), Clock::now() + 1ms);
  EXPECT_LE(lower.transport.next_event(), Clock::now() + 100ms);
  EXPECT_EQ(lower.transport.wait_fd(), -1);
  lower.transport.close();
  EXPECT_EQ(lower.transport.next_event(), TimePoint::max());
}

TEST(ShmTransport, BellsRingForFramesAndForSlotsThatWereAskedFor) {
  const TransportWorld world(shm_family("Shm", {.num_slots = 2}), 2);
  const SharedMapping sender_memory(world[0].doorbell.memory_fd(), 4096);
  const SharedMapping receiver_memory(world[1].doorbell.memory_fd(), 4096);
  const auto asleep = [](const SharedMapping& memory) {
    return reinterpret_cast<const BellWord*>(memory.data())->state != BellWord::kAwake;
  };
  world[1].doorbell.arm(false);
  EXPECT_TRUE(asleep(receiver_memory));
  ASSERT_TRUE(world[0].try_send(1, 0, 10));
  EXPECT_FALSE(asleep(receiver_memory));

  world[0].doorbell.arm(false);
  ASSERT_TRUE(world[0].try_send(1, 1, 10));
  ASSERT_TRUE(world[1].poll());
  EXPECT_TRUE(asleep(sender_memory)) << "rung for a slot that nobody waits for";
  ASSERT_TRUE(world[0].try_send(1, 1, 10) && world[0].try_send(1, 1, 10));
  ASSERT_FALSE(world[0].link(1).ready(1));
  ASSERT_TRUE(world[1].poll());
  EXPECT_FALSE(asleep(sender_memory));
}

ChannelGeometry geometry_of(const ShmOptions& options) {
  return {options.segment_bytes, options.num_slots, options.eager_bytes, options.num_control_slots};
}

// The other end of a transport, which the test controls.
class RoguePeer {
 public:
  explicit RoguePeer(ShmRank& lower) : self_{shm_identity(1, 2), geometry_of({}), &bell_, 10s} {
    int error = 0;
    auto introduction = Introduction::dial(self_, 0, lower.transport.name(), error);
    EXPECT_TRUE(poll_until({&lower}, [&] {
      return introduction->advance(Clock::now()) == Introduction::Progress::kDone;
    })) << introduction->reason();
    connection.emplace(introduction->take());
    EXPECT_TRUE(poll_until({&lower}, [&] { return lower.links.contains(1); }));
  }

  [[nodiscard]] const Ring& outgoing(std::size_t stream) const {
    return connection->channel.outgoing()[stream];
  }

  std::optional<ShmConnection> connection;

 private:
  Doorbell bell_;
  ShmSelf self_;
};

TEST(ShmTransport, APeerThatBreaksARingLosesBothStreamsAndTheReasonSaysHow) {
  for (const std::uint32_t stream : {0U, 1U}) {
    ShmRank lower(shm_identity(0, 2));
    const RoguePeer rogue(lower);
    RingProducer(rogue.outgoing(1 - stream)).push({.kind = FrameKind::kSegment}, {});
    rogue.outgoing(stream).state->produced = 1'000'000;
    ASSERT_TRUE(poll_until({&lower}, [&] { return lower.lost.size() == 2; }));
    EXPECT_EQ(lower.num_arrived[1 - stream], 1U);
    EXPECT_EQ(lower.num_arrived[stream], 0U);
    EXPECT_TRUE(contains(lower.lost[stream], "1000000 frames into a ring")) << lower.lost[stream];
    EXPECT_TRUE(contains(lower.lost[stream], "rank 1 (process "));
    EXPECT_FALSE(lower.links[1]->alive(0) || lower.links[1]->ready(1));
  }
}

TEST(ShmTransport, APeerThatTalksOnTheSilentSocketIsLost) {
  ShmRank lower(shm_identity(0, 2));
  const RoguePeer rogue(lower);
  ASSERT_EQ(::send(rogue.connection->socket.get(), "?", 1, 0), 1);
  EXPECT_TRUE(poll_until({&lower}, [&] { return lower.lost.size() == 2; }));
}

TEST(ShmTransport, AChannelThatIsTooSmallIsRefused) {
  const std::string name = "slipstream-test-" + std::to_string(::getpid());
  const Descriptor listener = listen_abstract(name);
  ShmRank higher(shm_identity(1, 2));
  ASSERT_TRUE(higher.transport.dial(0, name));
  const Descriptor socket = accept_connection(listener);
  Handshake handshake = Handshake::accept(shm_identity(0, 2), Purpose::kShm);
  ASSERT_TRUE(poll_until({&higher}, [&] {
    return handshake.advance(socket.get()) == Handshake::Progress::kDone;
  })) << handshake.reason();
  const ChannelGeometry geometry = geometry_of({});
  const Descriptor memory = make_memory_fd("slipstream-test", 4096);
  const Doorbell bell;
  const std::array<int, 3> descriptors{bell.memory_fd(), bell.event_fd(), memory.get()};
  ASSERT_TRUE(send_parcel(socket, std::as_bytes(std::span(&geometry, 1)), descriptors));
  ASSERT_TRUE(poll_until({&higher}, [&] { return !higher.refusals.empty(); }));
  EXPECT_TRUE(contains(higher.refusals[0], "sent shared memory of 4096 bytes"))
      << higher.refusals[0];
}

std::size_t count_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += contains(line, "memfd:") ? 1 : 0;
  return count;
}

std::set<std::string> files_in(const char* directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (contains(entry.path(), "slipstream")) names.insert(entry.path());
  }
  return names;
}

TEST(ShmTransport, TwoHundredWorldsLeaveNothingBehind) {
  const TransportFamily family = shm_family("Shm", {});
  const std::size_t descriptors = count_descriptors();
  const std::size_t mappings = count_mappings();
  const auto shared_memory = files_in("/dev/shm");
  const auto temporary = files_in("/tmp");
  for (int round = 0; round < 200; ++round) {
    TransportWorld world(family, 2);
    world.send(1, 0, 1, 1000);
    EXPECT_GT(count_mappings(), mappings);
    EXPECT_EQ(files_in("/dev/shm"), shared_memory);
  }
  EXPECT_EQ(count_descriptors(), descriptors);
  EXPECT_EQ(count_mappings(), mappings);
  EXPECT_EQ(files_in("/tmp"), temporary);
}

}  // namespace
}  // namespace slipstream::test
