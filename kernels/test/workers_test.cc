#include "workers.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace slipstream::kernels {
namespace {

class WorkersTest : public testing::TestWithParam<std::size_t> {};

TEST_P(WorkersTest, DoEveryPartOnce) {
  Workers workers(GetParam());
  EXPECT_EQ(workers.threads(), GetParam());
  for (std::size_t piece = 0; piece < 2000; ++piece) {
    std::vector<int> done(piece % 37, 0);
    workers.share(done.size(), [&](std::size_t part) { ++done[part]; });
    for (const int times : done) ASSERT_EQ(times, 1) << piece;
  }
}

TEST_P(WorkersTest, FinishOnePieceBeforeTheNext) {
  Workers workers(GetParam());
  std::vector<std::size_t> before(64, 0), after(64, 0);
  for (std::size_t piece = 0; piece < 2000; ++piece) {
    workers.share(64, [&](std::size_t part) {
      after[part] = before[63 - part] + 1;  // another thread's result of the piece before
    });
    std::swap(before, after);
  }
  EXPECT_EQ(before, std::vector<std::size_t>(64, 2000));
}

TEST_P(WorkersTest, EndAtAnyMoment) {
  for (int round = 0; round < 60; ++round) {
    auto workers = std::make_unique<Workers>(GetParam());
    std::atomic<int> done{0};
    for (int piece = 0; piece < round % 4; ++piece) {
      workers->share(5, [&](std::size_t) { ++done; });
    }
    EXPECT_EQ(done, round % 4 * 5);
  }
}

/// The pause is longer than the threads spin, so they sleep.
TEST_P(WorkersTest, WakeUpAgain) {
  Workers workers(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> done{0};
    workers.share(8, [&](std::size_t) { ++done; });
    EXPECT_EQ(done, 8);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }
}

TEST_P(WorkersTest, TeamsDoNotMeet) {
  std::vector<std::thread> callers;
  std::atomic<std::size_t> total{0};
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      Workers workers(GetParam());
      for (int piece = 0; piece < 50; ++piece) {
        std::vector<int> done(16, 0);
        workers.share(done.size(), [&](std::size_t part) { done[part] = 1; });
        for (const int one : done) total += static_cast<std::size_t>(one);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 3U * 50U * 16U);
}

INSTANTIATE_TEST_SUITE_P(Threads, WorkersTest, testing::Values(1U, 2U, 3U, 4U));

}  // namespace
}  // namespace slipstream::kernels
