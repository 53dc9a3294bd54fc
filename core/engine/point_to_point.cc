#include <algorithm>
#include <utility>

#include "engine/engine.h"

// Messages between two ranks. The sender numbers them for each receiver; the receiver matches them
// by source and tag in the order of arrival. Small ones travel at once, for the others the sender
// asks (kRequest) and the receiver posts when it has a receive for it.
namespace slipstream {

void Engine::check_message_possible(const std::shared_ptr<Operation>& operation) {
  const std::uint32_t root = operation->request().root;
  if (root == kAnyPeer) return;
  Peer& peer = peer_of(operation->group(), root);
  if (peer.reachable() && !peer.left()) return;
  fail_operation(operation,
                 Error(ErrorKind::kPeer, concat(name_of_peer(peer.rank()), " ", peer.why_gone())));
}

void Engine::start_send(const std::shared_ptr<Operation>& operation) {
  check_message_possible(operation);
  if (operation->completion()->done()) return;
  Group& group = operation->group();
  const Request& request = operation->request();
  Peer& peer = peer_of(group, request.root);
  operation->set_sequence(group.next_message[request.root]++);
  const std::span<const std::byte> payload = operation->whole(operation->plan().steps[0].from);
  Frame frame = frame_for(FrameKind::kEager, group, operation->sequence());
  frame.flags = kPointToPoint;
  frame.step = request.tag;
  frame.fingerprint = group.fingerprint(request, request.root);
  frame.offset = payload.size();
  const std::uint64_t bytes = sizeof(Frame) + payload.size();
  if (payload.size() <= options_.eager_bytes &&
      peer.eager_sent - peer.eager_credited + bytes <= options_.eager_pool_bytes) {
    peer.eager_sent += bytes;
    peer.send_control(frame, payload);
    return finish_segment(operation, 0, 0);
  }
  frame.kind = FrameKind::kRequest;
  group.sending[{request.root, operation->sequence()}] = operation;
  peer.send_control(frame, {});
}

void Engine::start_receive(const std::shared_ptr<Operation>& operation) {
  Group& group = operation->group();
  const Request& request = operation->request();
  const auto message = std::ranges::find_if(group.messages, [&](const Early& early) {
    return early.frame.step == request.tag &&
           (request.root == kAnyPeer || group.index_of(early.peer) == request.root);
  });
  if (message == group.messages.end()) {
    check_message_possible(operation);
    if (!operation->completion()->done()) group.receives.push_back(operation);
    return;
  }
  Early early = std::move(*message);
  group.messages.erase(message);
  match(operation, std::move(early));
}

void Engine::on_message(Peer& peer, Group& group, const Frame& frame,
                        std::span<const std::byte> payload) {
  Early early{peer.rank(), frame, {payload.begin(), payload.end()}};
  const std::uint32_t from = group.index_of(peer.rank());
  const auto receive = std::ranges::find_if(group.receives, [&](const auto& operation) {
    const Request& request = operation->request();
    return request.tag == frame.step && (request.root == kAnyPeer || request.root == from);
  });
  if (receive == group.receives.end()) {
    group.messages.push_back(std::move(early));
    return;
  }
  const std::shared_ptr<Operation> operation = *receive;
  group.receives.erase(receive);
  match(operation, std::move(early));
}

void Engine::match(const std::shared_ptr<Operation>& receive, Early&& message) {
  Group& group = receive->group();
  Peer& peer = *peers_[message.peer];
  const std::uint32_t from = group.index_of(message.peer);
  const bool is_small = message.frame.kind == FrameKind::kEager;
  if (is_small) release_eager(peer, sizeof(Frame) + message.payload.size());
  receive->completion()->set_source(from);
  receive->set_sequence(message.frame.sequence);
  const std::uint64_t expected = receive->plan().steps[0].to.bytes;
  if (message.frame.offset != expected ||
      message.frame.fingerprint != group.fingerprint(receive->request(), from)) {
    const Error cause(ErrorKind::kMismatch,
                      concat("rank ", group.rank(), " passed ", describe(receive->request()), " (",
                             expected, " bytes), but rank ", from, " sent ", message.frame.offset,
                             " bytes with this tag; both must pass the same dtype and count"));
    fail_operation(receive, cause);
    return fail_group(group, cause, true);
  }
  if (is_small) {
    receive->take(0, 0, message.payload);
    return finish_segment(receive, 0, 0);
  }
  if (!peer.available()) {  // it asked, and left
    return fail_operation(
        receive, Error(ErrorKind::kPeer, concat(name_of_peer(peer.rank()), " ", peer.why_gone())));
  }
  group.receiving[{from, message.frame.sequence}] = receive;
  Frame post = frame_for(FrameKind::kPost, group, message.frame.sequence);
  post.flags = kPointToPoint;
  peer.send_control(post, {});
}

}  // namespace slipstream
