// Measures shared memory between two real processes that both poll: the round-trip time of a small
// frame, and the bandwidth of segments that one process copies in and the other copies out. Each
// measurement has short runs, of which the best and the median are printed; the best shows the
// machine without other load.

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/doorbell.h"
#include "transport/shm/shm_transport.h"

namespace slipstream {
namespace {

constexpr std::size_t kSmallBytes = 64;
constexpr std::size_t kPings = 500;              // of one run
constexpr std::size_t kStreamedBytes = 8 << 20;  // of one run
constexpr std::size_t kPingRuns = 100;
constexpr std::size_t kStreamRuns = 200;
constexpr std::array<std::size_t, 2> kBufferBytes{std::size_t{4} << 20, std::size_t{64} << 20};

void pin_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  (void)::sched_setaffinity(0, sizeof cores, &cores);
}

// One of two ranks. Rank 1 echoes control frames; segments are copied to a buffer.
class Rank final : public Sink {
 public:
  explicit Rank(std::uint32_t rank)
      : echoes_(rank == 1), transport_({.rank = rank, .world_size = 2}, {}, bell_) {}

  ShmTransport& transport() { return transport_; }
  void poll() { transport_.poll(*this); }
  void connect() {
    while (link_ == nullptr) poll();
  }

  void connected(std::uint32_t, Link& link) override { link_ = &link; }
  void refused(std::uint32_t, const std::string& reason) override { leave(reason); }
  std::byte* place(std::uint32_t, const Frame&) override { return nullptr; }
  void arrived(std::uint32_t, std::uint32_t stream, const Frame& frame,
               std::span<const std::byte> payload) override {
    if (stream == 1) {
      std::memcpy(target_.data() + frame.offset, payload.data(), payload.size());
      segment_bytes_ += payload.size();
      return;
    }
    ++control_frames_;
    if (echoes_ && frame.kind == FrameKind::kEager) link_->send(0, frame, payload);
  }
  void stream_lost(std::uint32_t, std::uint32_t, const std::string& reason) override {
    leave(reason);
  }

  void use_buffers(std::size_t bytes) {
    source_.assign(bytes, std::byte{1});
    target_.assign(bytes, std::byte{2});
  }

  double echo() {
    meet();
    wait_for_control(kPings);
    return 0;
  }

  double ping() {
    const std::array<std::byte, kSmallBytes> payload{};
    const Frame frame{.kind = FrameKind::kEager, .length = kSmallBytes};
    meet();
    const TimePoint start = Clock::now();
    for (std::size_t i = 0; i < kPings; ++i) {
      link_->send(0, frame, payload);
      wait_for_control(1);
    }
    return seconds(Clock::now() - start);
  }

  // Sends `out` bytes of the source repeatedly, and receives `in` bytes into the target.
  double stream(std::size_t out, std::size_t in) {
    Frame frame{.kind = FrameKind::kSegment, .length = ShmOptions{}.segment_bytes};
    const std::size_t until = segment_bytes_ + in;
    meet();
    const std::size_t last = sent_bytes_ + out;
    const TimePoint start = Clock::now();
    while (sent_bytes_ < last || segment_bytes_ < until) {
      poll();
      frame.offset = sent_bytes_ % source_.size();
      const auto segment = std::span(source_).subspan(frame.offset, frame.length);
      if (sent_bytes_ < last && link_->send(1, frame, segment)) sent_bytes_ += segment.size();
    }
    meet();
    return seconds(Clock::now() - start);
  }

  // For comparison: both ranks copy as many bytes from source to target at the same time.
  double copy() {
    meet();
    const TimePoint start = Clock::now();
    const std::size_t step = ShmOptions{}.segment_bytes;
    for (const std::size_t last = copied_bytes_ + kStreamedBytes; copied_bytes_ < last;
         copied_bytes_ += step) {
      const std::size_t at = copied_bytes_ % source_.size();
      std::memcpy(target_.data() + at, source_.data() + at, step);
    }
    return seconds(Clock::now() - start);
  }

 private:
  void wait_for_control(std::size_t frames) {
    expected_ += frames;
    while (control_frames_ < expected_) poll();
  }

  void meet() {
    link_->send(0, {.kind = FrameKind::kAck}, {});
    wait_for_control(1);
  }

  [[noreturn]] static void leave(const std::string& reason) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    std::exit(1);
  }

  bool echoes_;
  Doorbell bell_;
  ShmTransport transport_;
  Link* link_ = nullptr;
  std::size_t control_frames_ = 0;
  std::size_t expected_ = 0;
  std::size_t segment_bytes_ = 0;
  std::size_t sent_bytes_ = 0;
  std::size_t copied_bytes_ = 0;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
};

struct Summary {
  double best;
  double median;
};

// The smallest and the median time that `run` returns, in seconds.
template <typename Run>
Summary repeat(std::size_t runs, Run run) {
  std::vector<double> times;
  for (std::size_t i = 0; i < runs; ++i) times.push_back(run());
  std::ranges::sort(times);
  return {times.front(), times[times.size() / 2]};
}

void print_rate(const char* what, const Summary& times) {
  const double bytes = static_cast<double>(kStreamedBytes);
  std::printf("  %-28s %6.2f GB/s (median %.2f)\n", what, bytes / times.best * 1e-9,
              bytes / times.median * 1e-9);
}

// Runs the measurement on both ranks; rank 0 prints.
void measure(Rank& rank, bool first) {
  rank.connect();
  const Summary ping = repeat(kPingRuns, [&] { return first ? rank.ping() : rank.echo(); });
  if (first) {
    std::printf("%zu bytes there and back: %.0f ns (median %.0f)\n", kSmallBytes,
                ping.best / kPings * 1e9, ping.median / kPings * 1e9);
  }
  for (const std::size_t bytes : kBufferBytes) {
    rank.use_buffers(bytes);
    const std::size_t out = first ? kStreamedBytes : 0;
    const auto one_way =
        repeat(kStreamRuns, [&] { return rank.stream(out, kStreamedBytes - out); });
    const auto both =
        repeat(kStreamRuns, [&] { return rank.stream(kStreamedBytes, kStreamedBytes); });
    const auto copy = repeat(kStreamRuns, [&] { return rank.copy(); });
    if (!first) continue;
    std::printf("buffers of %zu MiB, segments of %u KiB:\n", bytes >> 20,
                ShmOptions{}.segment_bytes >> 10);
    print_rate("one way", one_way);
    print_rate("both ways at once, each", both);
    print_rate("memcpy by both ranks, each", copy);
  }
}

// Runs in a child that was forked before any object was created.
[[noreturn]] void run_second(int name_pipe) {
  pin_to_core(1);
  std::array<char, 256> name{};
  const ssize_t length = ::read(name_pipe, name.data(), name.size());
  Rank rank(1);
  if (length <= 0 || !rank.transport().dial(0, {name.data(), static_cast<std::size_t>(length)})) {
    std::exit(1);
  }
  measure(rank, false);
  std::exit(0);
}

int run() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::array<int, 2> name_pipe{};
  if (::pipe(name_pipe.data()) != 0) return 1;
  if (::fork() == 0) run_second(name_pipe[0]);
  pin_to_core(0);
  Rank rank(0);
  const std::string& name = rank.transport().name();
  if (::write(name_pipe[1], name.data(), name.size()) < 0) return 1;
  measure(rank, true);
  int status = 0;
  ::wait(&status);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slipstream

int main() { return slipstream::run(); }
