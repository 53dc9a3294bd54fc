#include "slipstream/end_signal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>

#include "base/clock.h"

namespace slipstream::test {
namespace {

/// The signal that ends a child which runs `body`; 0 if the child exits, with `code`.
int signal_that_ends(const std::function<void()>& body, int* code = nullptr) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (code != nullptr) *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void read_from(int fd) {
  std::uint64_t count = 0;
  if (read(fd, &count, sizeof count) != sizeof count || count != 1) _exit(3);
}

TEST(EndSignal, LetsTheProcessActBeforeItEnds) {
  EXPECT_EQ(signal_that_ends([] {
              const int fd = delay_end_by_signal(SIGTERM, 60s);
              kill(getpid(), SIGTERM);
              read_from(fd);
              end_by_signal(SIGTERM);
            }),
            SIGTERM);
}

TEST(EndSignal, EndsTheProcessAfterTheGracePeriod) {
  EXPECT_EQ(signal_that_ends([] {
              delay_end_by_signal(SIGTERM, 20ms);
              kill(getpid(), SIGTERM);
              for (;;) pause();
            }),
            SIGTERM);
}

TEST(EndSignal, ASecondSignalEndsTheProcessAtOnce) {
  EXPECT_EQ(signal_that_ends([] {
              delay_end_by_signal(SIGTERM, 3600s);
              kill(getpid(), SIGTERM);
              kill(getpid(), SIGTERM);
              for (;;) pause();
            }),
            SIGTERM);
}

TEST(EndSignal, AForkedChildEndsAtOnceAndItsParentIsNotTold) {
  int code = -1;
  EXPECT_EQ(signal_that_ends(
                [] {
                  const int fd = delay_end_by_signal(SIGTERM, 3600s);
                  const int by = signal_that_ends([] {
                    kill(getpid(), SIGTERM);
                    for (;;) pause();
                  });
                  if (by != SIGTERM) _exit(4);
                  kill(getpid(), SIGTERM);  // the first one of this process: it does not end
                  read_from(fd);
                },
                &code),
            0);
  EXPECT_EQ(code, 0);
}

TEST(EndSignal, LeavesOtherDispositionsAlone) {
  int code = -1;
  signal_that_ends(
      [] {
        signal(SIGTERM, SIG_IGN);
        if (delay_end_by_signal(SIGTERM, 1s) != -1) _exit(5);
        kill(getpid(), SIGTERM);  // ignored still
      },
      &code);
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace slipstream::test
