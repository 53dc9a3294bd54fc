// The frames that the other end of a connection of NCCL sends, with the job key and over real
// connections: as a sender and as a receiver.

#include <array>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/input.h"
#include "recv_comm.h"
#include "send_comm.h"
#include "transport/tcp/tcp_transport.h"

namespace {

using slipstream::Frame;
using slipstream::Link;
using slipstream::TcpTransport;
using slipstream::fuzz::expect;
using slipstream::fuzz::Input;
using namespace slipstream::nccl;

constexpr std::uint32_t kEpoch = 5;
constexpr std::array<std::uint32_t, 5> kSizes{0, 1, 3000, 9000, 20000};

const slipstream::Log& silence() {
  static const slipstream::Log log([](slipstream::LogLevel, const std::string&) {});
  return log;
}

/// The end that the fuzzer plays.
class Player final : public slipstream::Sink {
 public:
  explicit Player(std::uint32_t rank)
      : transport_({.rank = rank, .world_size = 2, .epoch = kEpoch}, options(rank == 0)) {}

  void connected(std::uint32_t /*peer*/, Link& link) override { link_ = &link; }
  void refused(std::uint32_t /*peer*/, const std::string& /*reason*/) override { expect(false); }
  std::byte* place(std::uint32_t /*peer*/, const Frame& /*frame*/) override { return nullptr; }
  void arrived(std::uint32_t /*peer*/, std::uint32_t /*stream*/, const Frame& /*frame*/,
               std::span<const std::byte> /*payload*/) override {}
  void stream_lost(std::uint32_t /*peer*/, std::uint32_t /*stream*/,
                   const std::string& /*reason*/) override {}

  TcpTransport& transport() { return transport_; }
  [[nodiscard]] Link* link() const { return link_; }
  void poll() { transport_.poll(*this); }

 private:
  static slipstream::TcpOptions options(bool listens) {
    slipstream::TcpOptions options;
    if (!listens) options.bind.clear();
    options.log = silence();
    return options;
  }

  TcpTransport transport_;
  Link* link_ = nullptr;
};

/// The frame that each end expects next, or one with other fields.
Frame choose_frame(Input& input, bool to_receiver) {
  Frame frame;
  frame.kind = to_receiver
                   ? slipstream::FrameKind::kSegment
                   : (input.coin() ? slipstream::FrameKind::kPost : slipstream::FrameKind::kAck);
  frame.sequence = input.below(4);
  frame.group = kSizes[input.below(kSizes.size())];
  frame.step = 4096;
  frame.offset = to_receiver ? input.below(4) * 4096U : input.below(4);
  if (frame.kind == slipstream::FrameKind::kPost) frame.offset = 20000;
  frame.stream = static_cast<std::uint16_t>(input.below(2));
  const std::uint64_t left = frame.group - std::min(frame.group, frame.offset);
  frame.length = to_receiver ? static_cast<std::uint32_t>(std::min<std::uint64_t>(left, 4096)) : 0;
  switch (input.below(16)) {
    case 1:
      frame.kind = static_cast<slipstream::FrameKind>(1 + input.below(13));
      break;
    case 2:
      frame.length = input.number<std::uint16_t>();
      break;
    case 3:
      frame.offset = input.number<std::uint64_t>();
      break;
    case 4:
      frame.group = input.number<std::uint64_t>();
      break;
    case 5:
      frame.sequence = input.number<std::uint64_t>();
      break;
    case 6:
      frame.step = input.number<std::uint32_t>();
      break;
    default:
      break;
  }
  return frame;
}

struct Open {
  Request* request;
  std::unique_ptr<std::vector<std::byte>> memory;
};

/// Frees the memory of requests that are done. Returns false once the comm has failed.
bool settle(Comm& comm, std::list<Open>& open) {
  try {
    std::erase_if(open, [&](const Open& each) {
      std::size_t bytes = 0;
      const bool done = comm.test(*each.request, bytes);
      if (done) expect(bytes <= each.memory->size());
      return done;
    });
  } catch (const slipstream::Error&) {
    return false;
  }
  return true;
}

void play(Comm& comm, Player& player, Input& input, bool to_receiver) {
  std::list<Open> open;
  while (!comm.is_connected() || player.link() == nullptr) {
    player.poll();
    comm.drive();
    comm.check();
  }
  for (int step = 0; step < 64 && !input.empty(); ++step) {
    if (input.below(4) == 0) {
      auto memory = std::make_unique<std::vector<std::byte>>(kSizes[input.below(kSizes.size())]);
      Request* const request = comm.submit(*memory);
      if (request != nullptr) open.push_back({request, std::move(memory)});
    } else {
      const Frame frame = choose_frame(input, to_receiver);
      const std::vector<std::byte> payload(frame.length);
      player.link()->send(input.below(2), frame, payload);
      player.link()->forget(payload);
    }
    player.poll();
    comm.drive();
    if (!settle(comm, open)) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Options options;
  options.num_streams = 1;
  options.segment_bytes = 4096;
  if (input.coin()) {
    RecvComm comm(options, {"127.0.0.1"}, kEpoch, silence());
    Player player(1);
    player.transport().dial(0, endpoints_of(comm.handle()));
    play(comm, player, input, true);
  } else {
    Player player(0);
    Handle handle{.magic = Handle::kMagic, .epoch = kEpoch};
    set_endpoints(handle, player.transport().endpoints());
    SendComm comm(options, handle, silence());
    play(comm, player, input, false);
  }
  return 0;
}
