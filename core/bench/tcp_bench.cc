// Measures TCP over loopback between two real processes that both poll: the round-trip time of a
// small frame, and the bandwidth of segments. For comparison, two processes that do nothing else
// send() and recv() as many bytes. Each measurement has short runs, of which the best and the
// median are printed; the best shows the machine without other load.

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "transport/tcp/tcp_transport.h"

namespace slipstream {
namespace {

constexpr std::size_t kSmallBytes = 64;
constexpr std::size_t kPings = 300;               // of one run
constexpr std::size_t kStreamedBytes = 32 << 20;  // of one run
constexpr std::size_t kBufferBytes = 8 << 20;
constexpr std::size_t kPingRuns = 50;
constexpr std::size_t kStreamRuns = 60;

void pin_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  (void)::sched_setaffinity(0, sizeof cores, &cores);
}

TcpOptions options(std::uint16_t num_streams) { return {.num_streams = num_streams}; }

// One of two ranks. Rank 1 echoes control frames; segments are placed in a buffer.
class Rank final : public Sink {
 public:
  Rank(std::uint32_t rank, std::uint16_t num_streams)
      : echoes_(rank == 1),
        transport_({.rank = rank, .world_size = 2}, options(num_streams)),
        source_(kBufferBytes, std::byte{1}),
        target_(kBufferBytes, std::byte{2}) {}

  TcpTransport& transport() { return transport_; }
  void connect() {
    while (link_ == nullptr) transport_.poll(*this);
  }

  void connected(std::uint32_t, Link& link) override { link_ = &link; }
  void refused(std::uint32_t, const std::string& reason) override { leave(reason); }
  std::byte* place(std::uint32_t, const Frame& frame) override {
    return frame.kind == FrameKind::kSegment ? target_.data() + frame.offset : nullptr;
  }
  void arrived(std::uint32_t, std::uint32_t, const Frame& frame,
               std::span<const std::byte> payload) override {
    if (frame.kind == FrameKind::kSegment) {
      segment_bytes_ += payload.size();
      return;
    }
    ++control_frames_;
    if (echoes_ && frame.kind == FrameKind::kEager) link_->send(0, frame, payload);
  }
  void stream_lost(std::uint32_t, std::uint32_t, const std::string& reason) override {
    lost_ = reason;
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
    const std::size_t until = segment_bytes_ + in;
    meet();
    const std::size_t last = sent_bytes_ + out;
    const TimePoint start = Clock::now();
    while (sent_bytes_ < last || segment_bytes_ < until) {
      if (!lost_.empty()) leave(lost_);
      const bool sent = sent_bytes_ < last && send_segments(last);
      if (!transport_.poll(*this) && !sent) wait();
    }
    meet();
    return seconds(Clock::now() - start);
  }

  bool send_segments(std::size_t last) {
    bool any = false;
    for (std::uint32_t stream = 1; stream < link_->num_streams(); ++stream) {
      Frame frame{.kind = FrameKind::kSegment, .length = kMaxSegmentBytes};
      frame.offset = sent_bytes_ % source_.size();
      const auto segment = std::span(source_).subspan(frame.offset, frame.length);
      if (sent_bytes_ < last && link_->send(stream, frame, segment)) {
        sent_bytes_ += segment.size();
        any = true;
      }
    }
    return any;
  }

  void wait() {
    pollfd waiting{transport_.wait_fd(), POLLIN, 0};
    ::poll(&waiting, 1, 1000);
  }

  void wait_for_control(std::size_t frames) {
    expected_ += frames;
    while (control_frames_ < expected_) {
      if (!lost_.empty()) leave(lost_);
      transport_.poll(*this);
    }
  }

  void meet() {
    link_->send(0, {.kind = FrameKind::kAck}, {});
    ++expected_;
    while (control_frames_ < expected_) {
      if (!lost_.empty()) leave(lost_);
      if (!transport_.poll(*this)) wait();
    }
  }

  // Rank 1 waits for the end of rank 0, which would take an earlier end for a lost stream.
  [[noreturn]] void wait_for_the_end() {
    while (lost_.empty()) transport_.poll(*this);
    std::exit(0);
  }

 private:
  [[noreturn]] static void leave(const std::string& reason) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    std::exit(1);
  }

  bool echoes_;
  std::string lost_;
  TcpTransport transport_;
  Link* link_ = nullptr;
  std::size_t control_frames_ = 0;
  std::size_t expected_ = 0;
  std::size_t segment_bytes_ = 0;
  std::size_t sent_bytes_ = 0;
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
void measure(Rank& rank, bool first, std::uint16_t num_streams) {
  rank.connect();
  const Summary ping = repeat(kPingRuns, [&] { return first ? rank.ping() : rank.echo(); });
  const std::size_t out = first ? kStreamedBytes : 0;
  const auto one_way = repeat(kStreamRuns, [&] { return rank.stream(out, kStreamedBytes - out); });
  const auto both =
      repeat(kStreamRuns, [&] { return rank.stream(kStreamedBytes, kStreamedBytes); });
  if (!first) return;
  std::printf("%u streams, segments of %u KiB:\n", num_streams, kMaxSegmentBytes >> 10);
  print_rate("one way", one_way);
  print_rate("both ways at once, each", both);
  std::printf("  %zu bytes there and back: %.1f us (median %.1f)\n", kSmallBytes,
              ping.best / kPings * 1e6, ping.median / kPings * 1e6);
}

[[noreturn]] void run_second(int pipe, std::uint16_t num_streams) {
  pin_to_core(1);
  std::array<char, 256> name{};
  const ssize_t length = ::read(pipe, name.data(), name.size());
  if (length <= 0) std::exit(1);
  Rank rank(1, num_streams);
  rank.transport().dial(0, {std::string(name.data(), static_cast<std::size_t>(length))});
  measure(rank, false, num_streams);
  rank.wait_for_the_end();
}

void measure_streams(std::uint16_t num_streams) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) std::exit(1);
  if (::fork() == 0) run_second(pipe[0], num_streams);
  pin_to_core(0);
  {
    Rank rank(0, num_streams);
    const std::string& name = rank.transport().endpoints().at(0);
    if (::write(pipe[1], name.data(), name.size()) < 0) std::exit(1);
    measure(rank, true, num_streams);
  }
  int status = 0;
  ::wait(&status);
  if (status != 0) std::exit(1);
}

// The kernel's own speed: one connection, and blocking calls with one segment each.
void measure_plain_sockets() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener, raw, size) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, raw, &size) != 0) {
    std::exit(1);
  }
  std::vector<std::byte> buffer(kBufferBytes);
  const std::size_t bytes = kStreamedBytes * kStreamRuns;
  if (::fork() == 0) {
    pin_to_core(1);
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(socket, raw, size) != 0) std::exit(1);
    for (std::size_t sent = 0; sent < bytes; sent += kMaxSegmentBytes) {
      const std::byte* const at = buffer.data() + sent % kBufferBytes;
      if (::send(socket, at, kMaxSegmentBytes, MSG_NOSIGNAL) < 0) std::exit(1);
    }
    std::exit(0);
  }
  pin_to_core(0);
  const int socket = ::accept(listener, nullptr, nullptr);
  const Summary times = repeat(kStreamRuns, [&] {
    const TimePoint start = Clock::now();
    for (std::size_t left = kStreamedBytes; left > 0;) {
      const std::size_t at = (kStreamedBytes - left) % kBufferBytes;
      const std::size_t most = std::min({left, kBufferBytes - at, std::size_t{kMaxSegmentBytes}});
      const ssize_t received = ::recv(socket, buffer.data() + at, most, 0);
      if (received <= 0) std::exit(1);
      left -= static_cast<std::size_t>(received);
    }
    return seconds(Clock::now() - start);
  });
  std::printf("plain sockets, calls of %u KiB:\n", kMaxSegmentBytes >> 10);
  print_rate("one way", times);
  ::close(socket);
  ::close(listener);
  ::wait(nullptr);
}

}  // namespace
}  // namespace slipstream

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  slipstream::measure_plain_sockets();
  for (std::uint16_t num_streams = 1; num_streams <= 4;
       num_streams = static_cast<std::uint16_t>(2 * num_streams)) {
    slipstream::measure_streams(num_streams);
  }
}
