// Tests of shared memory between real processes: rank 0 is the test, and rank 1 is this program,
// started again with a role, which usually ends by kill -9.

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "test/shm_world.h"

namespace slipstream::test {
namespace {

constexpr std::uint32_t kSegmentBytes = 5'000;
// More slots than poll() empties before it checks the sockets, so some are left at a sudden end.
constexpr std::uint32_t kNumSlots = 200;

ShmOptions options() { return {.segment_bytes = kSegmentBytes, .num_slots = kNumSlots}; }

// Message `index` of a stream; every byte of it can be checked.
Message message_of(std::uint32_t stream, std::size_t index) {
  return make_message(1, 0, stream, index, stream == 0 ? 100 : kSegmentBytes);
}

bool send_next(Link& link, std::uint32_t stream, std::size_t& index) {
  if (!link.ready(stream)) return false;
  const Message message = message_of(stream, index);
  if (!link.send(stream, message.frame, message.payload)) return false;
  ++index;
  return true;
}

// ---- rank 1 --------------------------------------------------------------------------------

void echo_until_goodbye(ShmRank& rank) {
  bool told_to_leave = false;
  rank.on_arrived = [&](std::uint32_t, std::uint32_t stream, const Frame& frame,
                        std::span<const std::byte> payload) {
    told_to_leave = frame.kind == FrameKind::kGoodbye;
    if (!told_to_leave && !rank.links[0]->send(stream, frame, payload)) std::abort();
  };
  while (!told_to_leave && rank.lost.empty()) rank.poll();
  rank.transport.close();
}

void fill_all_and_die(ShmRank& rank) {
  for (std::uint32_t stream = 0; stream < 2; ++stream) {
    for (std::size_t index = 0; send_next(*rank.links[0], stream, index);) {
    }
  }
  ::kill(::getpid(), SIGKILL);
}

void send_until_killed(ShmRank& rank) {
  std::array<std::size_t, 2> indices{};
  while (rank.lost.empty()) {
    rank.poll();
    for (std::uint32_t stream = 0; stream < 2; ++stream) {
      send_next(*rank.links[0], stream, indices[stream]);
    }
  }
}

// Forks a process, as a training script does for its data loader's workers. Here it outlives the
// rank.
void fork_a_worker_and_wait(ShmRank& rank) {
  const pid_t worker = ::fork();
  if (worker == 0) {
    while (true) ::pause();
  }
  rank.links[0]->send(0, {.kind = FrameKind::kEager, .control = static_cast<std::uint64_t>(worker)},
                      {});
  while (rank.lost.empty()) rank.poll();
}

int play(const std::string& role, const std::string& name) {
  ShmRank rank(shm_identity(1, 2), options());
  if (!rank.transport.dial(0, name)) return 1;
  if (!poll_until({&rank}, [&] { return rank.links.contains(0); })) return 1;
  if (role == "echo") echo_until_goodbye(rank);
  if (role == "fill") fill_all_and_die(rank);
  if (role == "send") send_until_killed(rank);
  if (role == "fork") fork_a_worker_and_wait(rank);
  return 0;
}

// ---- rank 0 --------------------------------------------------------------------------------

class OtherProcess {
 public:
  OtherProcess(std::string role, std::string name) {
    std::string program = "/proc/self/exe";
    std::array<char*, 4> arguments{program.data(), role.data(), name.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments.data(), environ),
              0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  ~OtherProcess() {
    if (pid_ <= 0) return;
    kill();
    wait();
  }

  void kill() const { ::kill(pid_, SIGKILL); }
  // Waits for the end of rank 1 and returns its status.
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return status;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class ShmProcesses : public testing::Test {
 protected:
  void start(const std::string& role) {
    other.emplace(role, rank.transport.name());
    ASSERT_TRUE(poll_until({&rank}, [&] { return rank.links.contains(1); }));
  }
  // Checks every frame that arrives against the frames that rank 1 sends.
  void expect_whole_frames() {
    rank.on_arrived = [this](std::uint32_t, std::uint32_t stream, const Frame& frame,
                             std::span<const std::byte> payload) {
      const Message arrived{frame, {payload.begin(), payload.end()}};
      ASSERT_TRUE(arrived == message_of(stream, rank.num_arrived[stream] - 1));
    };
  }
  void expect_lost(pid_t pid) {
    ASSERT_TRUE(poll_until({&rank}, [&] { return rank.lost.size() == 2; }));
    for (const auto& [stream, reason] : rank.lost) {
      EXPECT_NE(reason.find("rank 1 (process " + std::to_string(pid)), std::string::npos) << reason;
      EXPECT_NE(reason.find("has ended"), std::string::npos) << reason;
      EXPECT_FALSE(rank.links[1]->alive(stream));
    }
    while (rank.poll()) {
    }
  }

  ShmRank rank{shm_identity(0, 2), options()};
  std::optional<OtherProcess> other;
};

TEST_F(ShmProcesses, ExchangeFramesAndLeaveInPeace) {
  start("echo");
  for (std::uint32_t stream = 0; stream < 2; ++stream) {
    std::size_t sent = 0;
    expect_whole_frames();
    ASSERT_TRUE(poll_until({&rank}, [&] {
      if (sent < 100 && sent < rank.num_arrived[stream] + 2) {
        send_next(*rank.links[1], stream, sent);
      }
      return rank.num_arrived[stream] == 100;
    }));
  }
  const pid_t pid = other->pid();
  ASSERT_TRUE(rank.links[1]->send(0, {.kind = FrameKind::kGoodbye}, {}));
  EXPECT_EQ(other->wait(), 0);
  expect_lost(pid);
}

TEST_F(ShmProcesses, WhatADeadRankHadSentIsDeliveredBeforeItIsLost) {
  start("fill");
  const pid_t pid = other->pid();
  expect_whole_frames();
  const int status = other->wait();
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  ASSERT_TRUE(rank.num_arrived.empty());
  expect_lost(pid);
  EXPECT_EQ(rank.num_arrived[0], ShmOptions{}.num_control_slots);
  EXPECT_EQ(rank.num_arrived[1], kNumSlots);
}

TEST_F(ShmProcesses, ARankThatIsKilledWhileItSendsIsLostAndNoFrameIsTorn) {
  start("send");
  const pid_t pid = other->pid();
  expect_whole_frames();
  std::size_t sent = 0;
  ASSERT_TRUE(poll_until({&rank}, [&] {
    send_next(*rank.links[1], 1, sent);
    return rank.num_arrived[0] > 200 && rank.num_arrived[1] > 200;
  }));
  other->kill();
  expect_lost(pid);
}

TEST_F(ShmProcesses, ASleepingRankNoticesADeathWithinTheTimeItAskedFor) {
  start("echo");
  other->kill();
  other->wait();
  int naps = 0;
  while (rank.lost.empty()) {
    rank.bell.arm(false);
    if (rank.poll()) {
      rank.bell.disarm();
      continue;
    }
    rank.bell.sleep(rank.transport.next_event());
    ASSERT_LT(++naps, 5);
  }
}

TEST_F(ShmProcesses, ADeadRankIsLostAlthoughItsForkedWorkerLivesOn) {
  start("fork");
  const pid_t pid = other->pid();
  pid_t worker = 0;
  rank.on_arrived = [&](std::uint32_t, std::uint32_t, const Frame& frame, const auto&) {
    worker = static_cast<pid_t>(frame.control);
  };
  ASSERT_TRUE(poll_until({&rank}, [&] { return worker > 0; }));
  other->kill();
  expect_lost(pid);
  EXPECT_EQ(::kill(worker, 0), 0) << "the worker should have outlived the rank";
  ::kill(worker, SIGKILL);
}

}  // namespace
}  // namespace slipstream::test

int main(int argc, char** argv) {
  if (argc == 3 && argv[1][0] != '-') return slipstream::test::play(argv[1], argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
