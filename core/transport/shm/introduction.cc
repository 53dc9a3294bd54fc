#include "transport/shm/introduction.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

// Root can do anything to this process anyway; other users are not allowed.
void check_owner(const SocketOwner& owner) {
  if (owner.uid == ::geteuid() || owner.uid == 0) return;
  fail(ErrorKind::kAuth, "belongs to user ", owner.uid, "; only user ", ::geteuid(),
       " and root may share memory with this rank");
}

void check_geometry(const ChannelGeometry& theirs, const ChannelGeometry& ours) {
  if (theirs == ours) return;
  fail(ErrorKind::kConfig, "was started with ", describe(theirs), ", this rank with ",
       describe(ours), "; give all ranks of a host the same shared-memory settings");
}

}  // namespace

std::optional<Introduction> Introduction::dial(const ShmSelf& self, std::uint32_t peer,
                                               const std::string& name, int& error) {
  AbstractConnection connection = connect_abstract(name);
  error = connection.error;
  if (error != 0 && error != EAGAIN) return std::nullopt;
  const Handshake::Call call{.purpose = Purpose::kShm, .peer = peer};
  Introduction introduction(self, std::move(connection.socket),
                            Handshake::connect(self.identity, call, Clock::now() + self.deadline));
  introduction.peer_ = peer;
  introduction.name_ = name;
  return introduction;
}

Introduction Introduction::accept(const ShmSelf& self, Descriptor socket, Handshake::Admit admit) {
  return {self, std::move(socket),
          Handshake::accept(self.identity, Purpose::kShm, std::move(admit),
                            Clock::now() + self.deadline)};
}

Introduction::Introduction(const ShmSelf& self, Descriptor socket, Handshake handshake)
    : self_(&self),
      deadline_(handshake.deadline()),
      socket_(std::move(socket)),
      handshake_(std::move(handshake)) {
  if (socket_) process_ = owner_of_other_end(socket_);
}

Introduction::Progress Introduction::advance(TimePoint now) {
  try {
    const bool connected = socket_ || connect();
    if (connected && shake_hands() && send_own() && receive_theirs()) return Progress::kDone;
    if (now < deadline_) return Progress::kPending;
    fail(ErrorKind::kPeerTimeout, "did not answer within ", seconds(self_->deadline),
         " s, while this rank waited for ", !connected ? "room in its backlog" : "its descriptors");
  } catch (const Error& error) {
    reason_ = error.what();
    socket_.reset();
    return Progress::kFailed;
  }
}

std::string Introduction::describe_process() const {
  return concat("process ", process_.pid, " of user ", process_.uid);
}

ShmConnection Introduction::take() {
  return {std::move(socket_), process_, std::move(*channel_), std::move(*bell_)};
}

bool Introduction::connect() {
  AbstractConnection connection = connect_abstract(name_);
  if (connection.error == EAGAIN) return false;
  if (connection.error != 0) {
    fail(ErrorKind::kPeer, "closed its Unix socket: ", std::strerror(connection.error));
  }
  socket_ = std::move(connection.socket);
  process_ = owner_of_other_end(socket_);
  return true;
}

bool Introduction::shake_hands() {
  if (met_) return true;
  check_owner(process_);
  switch (handshake_.advance(socket_.get())) {
    case Handshake::Progress::kPending:
      return false;
    case Handshake::Progress::kFailed:
      fail(ErrorKind::kAuth, handshake_.reason());
    case Handshake::Progress::kDone:
      break;
  }
  met_ = true;
  if (!is_dialler()) peer_ = handshake_.hello().from;
  return true;
}

bool Introduction::send_own() {
  if (sent_) return true;
  if (!is_dialler() && !channel_) channel_ = Channel::make(self_->geometry, memory_);
  const std::array<int, 3> descriptors{self_->bell->memory_fd(), self_->bell->event_fd(),
                                       memory_.get()};
  sent_ = send_parcel(socket_, std::as_bytes(std::span(&self_->geometry, 1)),
                      std::span(descriptors).first(is_dialler() ? 2 : 3));
  if (sent_) memory_.reset();
  return sent_;
}

bool Introduction::receive_theirs() {
  std::optional<Parcel> parcel = receive_parcel(socket_, sizeof(ChannelGeometry));
  if (!parcel) return false;
  open_theirs(std::move(*parcel));
  return true;
}

void Introduction::open_theirs(Parcel parcel) {
  const std::size_t expected = is_dialler() ? 3 : 2;
  if (parcel.bytes.size() != sizeof(ChannelGeometry) || parcel.descriptors.size() != expected) {
    fail(ErrorKind::kPeer, "sent ", parcel.bytes.size(), " bytes with ", parcel.descriptors.size(),
         " descriptors; expected ", sizeof(ChannelGeometry), " with ", expected);
  }
  ChannelGeometry geometry;
  std::memcpy(&geometry, parcel.bytes.data(), sizeof geometry);
  check_geometry(geometry, self_->geometry);
  bell_.emplace(parcel.descriptors[0], std::move(parcel.descriptors[1]));
  if (is_dialler()) channel_ = Channel::open(self_->geometry, parcel.descriptors[2]);
}

}  // namespace slipstream
