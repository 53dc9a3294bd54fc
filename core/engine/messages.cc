#include "engine/messages.h"

#include <algorithm>
#include <utility>

namespace slipstream {

void Messages::check_possible(const std::shared_ptr<Operation>& operation) {
  const std::uint32_t root = operation->request().root;
  if (root == kAnyPeer) return;
  Peer& peer = world_.peer_of(operation->group(), root);
  if (peer.reachable() && !peer.left()) return;
  operations_.fail(operation, Error(ErrorKind::kPeer,
                                    concat(world_.name_of(peer.rank()), " ", peer.why_gone())));
}

void Messages::start_send(const std::shared_ptr<Operation>& operation) {
  check_possible(operation);
  if (operation->completion()->done()) return;
  Group& group = operation->group();
  const Request& request = operation->request();
  Peer& peer = world_.peer_of(group, request.root);
  operation->set_sequence(group.next_message[request.root]++);
  const std::span<const std::byte> payload = operation->whole(operation->plan().steps[0].from);
  Frame frame = world_.frame_for(FrameKind::kEager, group, operation->sequence());
  frame.flags = kPointToPoint;
  frame.step = request.tag;
  frame.fingerprint = group.fingerprint(request, request.root);
  frame.offset = payload.size();
  const std::uint64_t bytes = sizeof(Frame) + payload.size();
  if (payload.size() <= world_.options.eager_bytes &&
      peer.eager_sent - peer.eager_credited + bytes <= world_.options.eager_pool_bytes) {
    peer.eager_sent += bytes;
    peer.send_control(frame, payload);
    return operations_.finish_segment(operation, 0, 0);
  }
  frame.kind = FrameKind::kRequest;
  group.sending[{request.root, operation->sequence()}] = operation;
  peer.send_control(frame, {});
}

void Messages::start_receive(const std::shared_ptr<Operation>& operation) {
  Group& group = operation->group();
  const Request& request = operation->request();
  const auto message = std::ranges::find_if(group.messages, [&](const Early& early) {
    return early.frame.step == request.tag &&
           (request.root == kAnyPeer || group.index_of(early.peer) == request.root);
  });
  if (message == group.messages.end()) {
    check_possible(operation);
    if (!operation->completion()->done()) group.receives.push_back(operation);
    return;
  }
  Early early = std::move(*message);
  group.messages.erase(message);
  match(operation, std::move(early));
}

/// Whether a frame has the payload that it announces; if not, the peer is given up.
bool Messages::check_size(Peer& peer, const Frame& frame, std::span<const std::byte> payload) {
  const std::uint64_t expected = frame.kind == FrameKind::kEager ? frame.offset : 0;
  if (payload.size() == expected) return true;
  failures_.break_off(peer, frame,
                      concat("with ", payload.size(), " bytes; it announces ", expected));
  return false;
}

void Messages::on_message(Peer& peer, Group& group, const Frame& frame,
                          std::span<const std::byte> payload) {
  if (!check_size(peer, frame, payload)) return;
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

void Messages::match(const std::shared_ptr<Operation>& receive, Early&& message) {
  Group& group = receive->group();
  Peer& peer = *world_.peers[message.peer];
  const std::uint32_t from = group.index_of(message.peer);
  const bool is_small = message.frame.kind == FrameKind::kEager;
  if (is_small) world_.release_eager(peer, sizeof(Frame) + message.payload.size());
  receive->completion()->set_source(from);
  receive->set_sequence(message.frame.sequence);
  const std::uint64_t expected = receive->plan().steps[0].to.bytes;
  if (message.frame.offset != expected ||
      message.frame.fingerprint != group.fingerprint(receive->request(), from)) {
    const Error cause(ErrorKind::kMismatch,
                      concat("rank ", group.rank(), " passed ", describe(receive->request()), " (",
                             expected, " bytes), but rank ", from, " sent ", message.frame.offset,
                             " bytes with this tag; both must pass the same dtype and count"));
    operations_.fail(receive, cause);
    return failures_.fail_group(group, cause, true);
  }
  if (is_small) {
    receive->take(0, 0, message.payload);
    return operations_.finish_segment(receive, 0, 0);
  }
  if (!peer.available()) {  // it has asked, and then left
    return operations_.fail(receive, Error(ErrorKind::kPeer, concat(world_.name_of(peer.rank()),
                                                                    " ", peer.why_gone())));
  }
  if (!group.receiving.try_emplace({from, message.frame.sequence}, receive).second) {
    operations_.fail(receive, Error(ErrorKind::kPeer, "the sender used its number twice"));
    return failures_.break_off(
        peer, message.frame,
        concat("for message ", message.frame.sequence, ", whose number it has used before"));
  }
  Frame post = world_.frame_for(FrameKind::kPost, group, message.frame.sequence);
  post.flags = kPointToPoint;
  peer.send_control(post, {});
}

void Messages::on_post(Peer& peer, Group& group, const Frame& frame) {
  const auto found = group.sending.find({group.index_of(peer.rank()), frame.sequence});
  if (found == group.sending.end()) return;
  const std::shared_ptr<Operation> send = found->second;
  if (std::exchange(send->is_asked_for, true)) {
    return failures_.break_off(
        peer, frame, concat("for message ", frame.sequence, ", which it has asked for before"));
  }
  for (std::uint32_t segment = 0; segment < send->num_segments(0); ++segment) {
    peer.send_segment({send, 0, segment});
  }
}

}  // namespace slipstream
