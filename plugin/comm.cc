#include "comm.h"

#include <algorithm>
#include <utility>

namespace slipstream::nccl {
namespace {

constexpr std::size_t kMostNameBytes = 200;

/// A connection whose peer acknowledges nothing for this time is given up. A debugger may stop a
/// process for a while, so the time is long.
constexpr std::chrono::milliseconds kSilence{60'000};

TcpOptions completed(TcpOptions tcp, const Options& options, const std::string& peer) {
  tcp.num_streams = options.num_streams;
  tcp.tls = options.tls;
  tcp.traffic = options.traffic;
  tcp.connect_deadline = options.connect_deadline;
  tcp.silence = kSilence;
  tcp.peer_name = peer;
  return tcp;
}

std::string printable(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes.first(std::min(bytes.size(), kMostNameBytes))) {
    const char letter = static_cast<char>(byte);
    text += letter >= ' ' && letter <= '~' ? letter : '.';
  }
  return text;
}

}  // namespace

Comm::Comm(const Options& options, std::uint32_t rank, std::uint32_t epoch, TcpOptions tcp,
           std::string peer)
    : log_(tcp.log),
      self_(name_of_this_process(options)),
      peer_(std::move(peer)),
      transport_({.rank = rank, .world_size = 2, .epoch = epoch, .key = options.key},
                 completed(std::move(tcp), options, peer_)),
      requests_(*this) {}

Comm::~Comm() {
  const std::lock_guard lock(driving_);
  transport_.close();
}

Request* Comm::submit(std::span<std::byte> memory) {
  Request* const request = requests_.submit(memory);
  if (request != nullptr) drive();
  return request;
}

bool Comm::test(Request& request, std::size_t& bytes) {
  const auto done = [&] {
    return request.state.load(std::memory_order_acquire) == Request::State::kDone;
  };
  if (!done()) drive();
  if (!done()) {
    check();
    return false;
  }
  bytes = request.bytes;
  request.state.store(Request::State::kFree, std::memory_order_release);
  return true;
}

void Comm::drive() {
  const std::unique_lock lock(driving_, std::try_to_lock);
  if (lock) turn();
}

bool Comm::help() {
  const std::lock_guard lock(driving_);
  turn();
  return !failed_ && transport_.next_event() <= Clock::now();
}

void Comm::turn() {
  if (failed_) return;
  try {
    transport_.poll(*this);
    if (link_ == nullptr || failed_) return;
    log_loss();
    for (; taken_ < requests_.submitted(); ++taken_) take(requests_[taken_], taken_);
    advance(Clock::now());
  } catch (const Error& error) {
    end(error.kind(), error.what());
  } catch (const std::exception& error) {
    end(ErrorKind::kInternal, error.what());
  }
}

void Comm::check() const {
  if (failed_.load(std::memory_order_acquire)) throw Error(*failure_);
}

void Comm::end(ErrorKind kind, const std::string& why) {
  if (failed_) return;
  const std::string where = link_ != nullptr ? concat(" (", link_->describe(), ")") : "";
  failure_.emplace(kind, concat("the connection with ", peer_, where, " has failed: ", why));
  failed_.store(true, std::memory_order_release);
  transport_.close();
}

void Comm::break_off(const Frame& frame, const std::string& why) const {
  fail(ErrorKind::kPeer, "the peer sent a frame of kind ", static_cast<int>(frame.kind),
       " for message ", frame.sequence, ", ", why,
       "; install the same Slipstream on all hosts, or report it");
}

void Comm::connected(std::uint32_t /*peer*/, Link& link) {
  link_ = &link;
  transport_.stop_listening();
  Frame frame;
  frame.kind = FrameKind::kDescribe;
  frame.length = static_cast<std::uint32_t>(self_.size());
  link.send(0, frame, std::as_bytes(std::span(self_)));
}

void Comm::refused(std::uint32_t /*peer*/, const std::string& reason) {
  end(ErrorKind::kPeer, reason);
}

void Comm::arrived(std::uint32_t /*peer*/, std::uint32_t stream, const Frame& frame,
                   std::span<const std::byte> payload) {
  if (failed_) return;
  if (frame.kind == FrameKind::kDescribe) {
    peer_ = printable(payload);
  } else {
    take_frame(stream, frame, payload);
  }
}

void Comm::stream_lost(std::uint32_t /*peer*/, std::uint32_t stream, const std::string& reason) {
  if (failed_) return;
  std::uint32_t left = 0;
  for (std::uint32_t each = 0; each < link_->num_streams(); ++each) left += link_->alive(each);
  if (left == 0) return end(ErrorKind::kPeer, concat(reason, ", and no other stream is left"));
  loss_ = concat("the connection with ", peer_, " goes on with ", left, " streams: ", reason);
  lose(stream);
}

/// A peer that closes the comm ends all streams, and the last acknowledgements may come with them.
/// So a loss is logged only if requests are open when everything was read.
void Comm::log_loss() {
  if (!loss_.empty() && busy()) log_(LogLevel::kWarning, loss_);
  loss_.clear();
}

}  // namespace slipstream::nccl
