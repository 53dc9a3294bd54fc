#include "transport/handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::string_view kAcceptLabel = "slipstream accept";
constexpr std::string_view kConnectLabel = "slipstream connect";
constexpr std::string_view kSecretLabel = "slipstream tls";

struct Challenge {
  std::uint64_t magic = 0;
  std::uint16_t version = 0;
  std::array<std::uint8_t, 6> reserved{};
  Nonce nonce{};
  Digest proof{};
};
static_assert(sizeof(Challenge) == 80);
static_assert(offsetof(Challenge, version) == offsetof(Hello, version));
static_assert(offsetof(Challenge, proof) == 48);
/// Magic and version, with which the first message of either end begins in every version.
constexpr std::size_t kPrefixBytes = offsetof(Hello, version) + sizeof(Hello::version);

struct VerdictMessage {
  std::uint8_t welcome = 0;
  std::uint8_t length = 0;  ///< of `text`, the reason of a refusal
  std::array<char, 126> text{};
};
static_assert(sizeof(VerdictMessage) == 128);

template <typename Message>
Message parse(const std::vector<std::byte>& bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

const char* name_of(Purpose purpose) {
  return purpose == Purpose::kShm ? "shared memory" : "a tcp stream";
}

const char* setting_of(Purpose purpose) {
  return purpose == Purpose::kTls ? "SLIPSTREAM_TLS=1" : "SLIPSTREAM_TLS=0";
}

/// The bytes of a stranger as text that is safe to log.
std::string printable(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    const char letter = static_cast<char>(byte);
    text += letter >= ' ' && letter <= '~' ? letter : '.';
  }
  return text;
}

}  // namespace

Handshake::Handshake(const Identity& self, bool connector, TimePoint deadline)
    : self_(self), connector_(connector), deadline_(deadline) {}

Handshake Handshake::connect(const Identity& self, const Call& call, TimePoint deadline) {
  Handshake handshake(self, true, deadline);
  handshake.purpose_ = call.purpose;
  Hello& hello = handshake.hello_;
  hello.magic = kHandshakeMagic;
  hello.version = kProtocolVersion;
  hello.purpose = call.purpose;
  hello.epoch = self.epoch;
  hello.from = self.rank;
  hello.to = call.peer;
  hello.world_size = self.world_size;
  hello.stream = call.stream;
  hello.num_streams = call.num_streams;
  hello.renews = call.renews;
  hello.nonce = random_nonce();
  handshake.send(Step::kHello, hello);
  return handshake;
}

Handshake Handshake::accept(const Identity& self, Purpose purpose, Admit admit,
                            TimePoint deadline) {
  Handshake handshake(self, false, deadline);
  handshake.purpose_ = purpose;
  handshake.admit_ = std::move(admit);
  handshake.receive(Step::kHello, sizeof(Hello));
  return handshake;
}

Handshake::Progress Handshake::advance(int fd) {
  while (step_ != Step::kDone && step_ != Step::kFailed) {
    const bool whole = transfer(fd);
    if (step_ == Step::kFailed) break;
    if (whole) {
      connector_ ? act_as_connector() : act_as_acceptor();
    } else if (Clock::now() >= deadline_) {
      stop(Failure::kConnection, overdue());
    } else {
      return Progress::kPending;
    }
  }
  return step_ == Step::kDone ? Progress::kDone : Progress::kFailed;
}

template <typename Message>
void Handshake::send(Step step, const Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  step_ = step;
  sending_ = true;
  transferred_ = 0;
  message_.resize(sizeof message);
  std::memcpy(message_.data(), &message, sizeof message);
}

void Handshake::receive(Step step, std::size_t bytes) {
  step_ = step;
  sending_ = false;
  transferred_ = 0;
  message_.assign(bytes, std::byte{});
}

/// Reads or writes as much of message_ as possible. Returns whether it is complete.
bool Handshake::transfer(int fd) {
  while (transferred_ < message_.size()) {
    std::byte* const at = message_.data() + transferred_;
    const std::size_t left = message_.size() - transferred_;
    const ssize_t moved = sending_ ? ::send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT)
                                   : ::recv(fd, at, left, MSG_DONTWAIT);
    if (moved < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      stop(Failure::kConnection, concat("broke off during the handshake: ", std::strerror(errno)));
      return false;
    }
    if (moved == 0) {
      stop(Failure::kConnection, step_ == Step::kHello && transferred_ == 0
                                     ? "closed the connection without sending anything"
                                     : "closed the connection during the handshake, as a process "
                                       "with another job key does");
      return false;
    }
    transferred_ += static_cast<std::size_t>(moved);
    if (!sending_ && (step_ == Step::kHello || step_ == Step::kChallenge)) check_prefix();
    if (step_ == Step::kFailed) return false;
  }
  return true;
}

/// Stops as soon as the first bytes show that the other end is not Slipstream, or has another
/// version.
void Handshake::check_prefix() {
  const std::size_t known = std::min(transferred_, sizeof kHandshakeMagic);
  if (std::memcmp(message_.data(), &kHandshakeMagic, known) != 0) {
    stop(Failure::kStranger, concat("does not speak Slipstream's protocol: it began with '",
                                    printable({message_.data(), known}), "'"));
    return;
  }
  if (transferred_ < kPrefixBytes) return;
  std::uint16_t version = 0;
  std::memcpy(&version, message_.data() + offsetof(Hello, version), sizeof version);
  if (version == kProtocolVersion) return;
  refusal_ = concat("speaks protocol version ", version, ", this process speaks version ",
                    kProtocolVersion, "; install the same Slipstream on all hosts");
  if (connector_) {
    stop(Failure::kRefused, refusal_);
  } else {
    message_.resize(transferred_);  // the rest has a form that we do not know
  }
}

void Handshake::act_as_connector() {
  switch (step_) {
    case Step::kHello:
      return receive(Step::kChallenge, sizeof(Challenge));
    case Step::kChallenge:
      return verify_challenge();
    case Step::kProof:
      return receive(Step::kVerdict, sizeof(VerdictMessage));
    default:
      return take_verdict();
  }
}

void Handshake::act_as_acceptor() {
  switch (step_) {
    case Step::kHello:
      return challenge();
    case Step::kChallenge:
      if (!refusal_.empty()) return stop(Failure::kRefused, refusal_);
      return receive(Step::kProof, sizeof(Digest));
    case Step::kProof:
      return give_verdict();
    default:
      if (!refusal_.empty()) return stop(Failure::kRefused, concat("was refused: ", refusal_));
      step_ = Step::kDone;
  }
}

/// For the acceptor. A client with another version learns our version, but nothing that needs the
/// key.
void Handshake::challenge() {
  Challenge answer{.magic = kHandshakeMagic, .version = kProtocolVersion};
  if (refusal_.empty()) {
    hello_ = parse<Hello>(message_);
    answer.nonce = random_nonce();
    std::memcpy(challenged_.data(), &answer, challenged_.size());
    answer.proof = digest(kAcceptLabel);
  }
  send(Step::kChallenge, answer);
}

void Handshake::verify_challenge() {
  const auto answer = parse<Challenge>(message_);
  std::memcpy(challenged_.data(), &answer, challenged_.size());
  if (!equal_in_constant_time(answer.proof, digest(kAcceptLabel))) {
    return stop(Failure::kStranger,
                "did not prove the job key: it belongs to another job, or has another "
                "SLIPSTREAM_JOB_KEY");
  }
  send(Step::kProof, digest(kConnectLabel));
}

void Handshake::give_verdict() {
  if (!equal_in_constant_time(parse<Digest>(message_), digest(kConnectLabel))) {
    return stop(Failure::kStranger,
                concat("did not prove the job key, and claimed to be rank ", hello_.from));
  }
  refusal_ = judge();
  VerdictMessage verdict;
  verdict.welcome = refusal_.empty() ? 1 : 0;
  const std::size_t length = std::min(refusal_.size(), verdict.text.size());
  verdict.length = static_cast<std::uint8_t>(length);
  refusal_.copy(verdict.text.data(), length);
  send(Step::kVerdict, verdict);
}

void Handshake::take_verdict() {
  const auto verdict = parse<VerdictMessage>(message_);
  if (verdict.welcome == 1) {
    step_ = Step::kDone;
    return;
  }
  const std::size_t length = std::min<std::size_t>(verdict.length, verdict.text.size());
  stop(Failure::kRefused, concat("refused: ", std::string_view(verdict.text.data(), length)));
}

/// The reason why a connector that has proved the key cannot have this connection; empty if it can.
std::string Handshake::judge() const {
  const auto is_tcp = [](Purpose each) { return each == Purpose::kTcp || each == Purpose::kTls; };
  if (hello_.purpose != purpose_ && is_tcp(hello_.purpose) && is_tcp(purpose_)) {
    return concat("the connecting rank has ", setting_of(hello_.purpose), ", the listening one ",
                  setting_of(purpose_), "; set it alike on all ranks");
  }
  if (hello_.purpose != purpose_) {
    return concat("the connection is for ", name_of(hello_.purpose), ", this listener is for ",
                  name_of(purpose_));
  }
  if (hello_.epoch != self_.epoch) {
    return concat("the connection is of epoch ", hello_.epoch, ", rank ", self_.rank,
                  " is in epoch ", self_.epoch);
  }
  if (hello_.world_size != self_.world_size) {
    return concat("rank ", hello_.from, " has world size ", hello_.world_size, ", rank ",
                  self_.rank, " has ", self_.world_size);
  }
  if (hello_.to != self_.rank) {
    return concat("the connection is for rank ", hello_.to, ", this is rank ", self_.rank);
  }
  if (hello_.from >= self_.world_size || hello_.from == self_.rank) {
    return concat("rank ", hello_.from, " connected to rank ", self_.rank,
                  "; allowed: the other ranks below ", self_.world_size);
  }
  if (hello_.stream >= hello_.num_streams) {
    return concat("stream ", hello_.stream, " was requested; allowed: 0 to ",
                  int{hello_.num_streams} - 1);
  }
  return admit_ ? admit_(hello_) : std::string();
}

std::uint64_t Handshake::tag() const noexcept {
  std::uint64_t tag = 0;
  std::memcpy(&tag, hello_.nonce.data(), sizeof tag);
  return tag;
}

Digest Handshake::secret() const { return digest(kSecretLabel); }

std::string Handshake::overdue() const {
  return concat(greeted() || connector_ || transferred_ > 0 ? "did not finish the handshake within "
                                                            : "sent nothing within ",
                seconds(std::chrono::round<std::chrono::milliseconds>(deadline_ - started_)), " s");
}

Digest Handshake::digest(std::string_view label) const {
  return hmac_sha256(self_.key, {std::as_bytes(std::span(label)),
                                 std::as_bytes(std::span(&hello_, 1)), challenged_});
}

void Handshake::stop(Failure failure, std::string reason) {
  step_ = Step::kFailed;
  failure_ = failure;
  reason_ = std::move(reason);
}

}  // namespace slipstream
