#include "slipstream/end_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace slipstream {
namespace {

/// The state of one caught signal. Its members are set before the signal is caught.
struct Caught {
  pid_t process = 0;
  int event_fd = -1;
  timer_t timer{};  // sends the signal again
  itimerspec grace{};
  std::atomic<bool> has_come{false};
};

// A signal handler has no other way to its state.
std::array<Caught, NSIG> caught_signals;

void restore_default(int number) {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
}

/// Calls only functions that are safe in signal handlers. A raised signal arrives when the handler
/// returns.
void on_signal(int number) {
  const int error = errno;
  Caught& caught = caught_signals[static_cast<std::size_t>(number)];
  const std::uint64_t one = 1;
  const bool ends_now = getpid() != caught.process || caught.has_come.exchange(true) ||
                        timer_settime(caught.timer, 0, &caught.grace, nullptr) != 0 ||
                        write(caught.event_fd, &one, sizeof one) != sizeof one;
  if (ends_now) {
    restore_default(number);
    raise(number);
  }
  errno = error;
}

}  // namespace

int delay_end_by_signal(int number, std::chrono::nanoseconds grace) {
  struct sigaction action{};
  if (number <= 0 || number >= NSIG || sigaction(number, nullptr, &action) != 0) return -1;
  if ((action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL) return -1;
  Caught& caught = caught_signals[static_cast<std::size_t>(number)];
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = number;
  if (timer_create(CLOCK_MONOTONIC, &event, &caught.timer) != 0) return -1;
  caught.event_fd = eventfd(0, EFD_CLOEXEC);
  if (caught.event_fd < 0) return -1;
  caught.process = getpid();
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(grace);
  caught.grace.it_value.tv_sec = whole.count();
  caught.grace.it_value.tv_nsec = (grace - whole).count() + 1;  // zero would disarm it
  caught.has_come = false;
  action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  return sigaction(number, &action, nullptr) == 0 ? caught.event_fd : -1;
}

void end_by_signal(int number) {
  restore_default(number);
  kill(getpid(), number);
}

}  // namespace slipstream
