#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "base/hmac.h"
#include "transport/frame.h"
#include "transport/identity.h"

namespace slipstream {

/// What a connection is for: one that was opened for shared memory never passes for a TCP stream.
enum class Purpose : std::uint8_t { kTcp = 1, kShm = 2 };

/// The first message of a connection, as it travels: who dials whom, and for which stream.
/// Magic and version stand where they are in every version of the protocol.
struct Hello {
  std::uint64_t magic = 0;
  std::uint16_t version = 0;
  Purpose purpose{};
  std::uint8_t reserved = 0;
  std::uint32_t epoch = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t world_size = 0;
  std::uint16_t stream = 0;
  std::uint16_t num_streams = 0;  ///< of this pair of ranks, control stream included
  Nonce nonce{};
};
static_assert(sizeof(Hello) == 64);
static_assert(std::is_trivially_copyable_v<Hello>);

constexpr std::uint64_t kHandshakeMagic = 0x314d545350494c53;  // "SLIPSTM1"
constexpr Clock::duration kHandshakeDeadline = 10s;

/// The authenticated handshake of one connected stream socket, for either end.
///
///   connector  Hello      {magic, version, who, nonce C}
///   acceptor   Challenge  {magic, version, nonce A, HMAC(key, "slipstream accept", ...)}
///   connector  Proof      {HMAC(key, "slipstream connect", ...)}
///   acceptor   Verdict    {welcome, or why not}
///
/// Both digests are of their label, the whole Hello and the whole Challenge up to the digest, and
/// so of both nonces, both ranks, epoch and versions. The acceptor judges epoch, ranks and stream
/// only once the key is proved: a stranger learns the version and then sees a closed socket, a rank
/// of the same job is told the exact cause. No byte after the handshake is read. Works on any
/// stream socket, blocking or not; never blocks, never SIGPIPE.
class Handshake {
 public:
  enum class Progress : std::uint8_t { kPending, kDone, kFailed };

  /// Why it failed, by what the connector should do next.
  enum class Failure : std::uint8_t {
    kNone,
    kConnection,  ///< closed, reset or too slow: trying again may help
    kStranger,    ///< the other end is not of this job (or not Slipstream at all)
    kRefused,     ///< it is of this job, and cannot have this connection: version, epoch, rank...
  };

  /// What the connector asks for.
  struct Call {
    Purpose purpose = Purpose::kTcp;
    std::uint32_t peer = 0;
    std::uint16_t stream = 0;
    std::uint16_t num_streams = 1;
  };

  /// Whether the acceptor has room for what a proved connector asks; empty for yes, else a reason
  /// (cut after 120 characters) that the connector is told.
  using Admit = std::function<std::string(const Hello&)>;

  [[nodiscard]] static Handshake connect(const Identity& self, const Call& call,
                                         TimePoint deadline = Clock::now() + kHandshakeDeadline);
  [[nodiscard]] static Handshake accept(const Identity& self, Purpose purpose, Admit admit = {},
                                        TimePoint deadline = Clock::now() + kHandshakeDeadline);

  /// Goes on as far as the socket allows. After kPending, call again when `fd` is readable (or
  /// writable, see wants_write) or at the deadline. kDone and kFailed are final.
  Progress advance(int fd);
  /// Whether the next step waits for room in the socket rather than for the peer.
  [[nodiscard]] bool wants_write() const noexcept { return sending_; }
  [[nodiscard]] TimePoint deadline() const noexcept { return deadline_; }
  /// What the connector said of itself. Proved once advance() has returned kDone.
  [[nodiscard]] const Hello& hello() const noexcept { return hello_; }
  /// Whether a whole Hello has been received (acceptor): it is a client of Slipstream at least.
  [[nodiscard]] bool greeted() const noexcept { return step_ > Step::kHello; }

  [[nodiscard]] Failure failure() const noexcept { return failure_; }
  /// Why it failed, as the end of a sentence that begins with the peer: "speaks protocol ...".
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  enum class Step : std::uint8_t { kHello, kChallenge, kProof, kVerdict, kDone, kFailed };

  Handshake(const Identity& self, bool connector, TimePoint deadline);
  template <typename Message>
  void send(Step step, const Message& message);
  void receive(Step step, std::size_t bytes);
  bool transfer(int fd);
  void check_prefix();
  void act_as_connector();
  void act_as_acceptor();
  void challenge();
  void verify_challenge();
  void give_verdict();
  void take_verdict();
  [[nodiscard]] std::string judge() const;
  [[nodiscard]] std::string overdue() const;
  [[nodiscard]] Digest digest(std::string_view label) const;
  void stop(Failure failure, std::string reason);

  Identity self_;
  bool connector_;
  TimePoint started_ = Clock::now();
  TimePoint deadline_;
  Purpose purpose_ = Purpose::kTcp;
  Admit admit_;
  Hello hello_{};
  std::array<std::byte, 48> challenged_{};  // the Challenge up to its digest
  Step step_ = Step::kHello;
  bool sending_ = false;            // whether message_ is being written, else read
  std::vector<std::byte> message_;  // of the current step
  std::size_t transferred_ = 0;     // bytes of message_
  std::string refusal_;             // acceptor: what the connector is being told
  Failure failure_ = Failure::kNone;
  std::string reason_;
};

}  // namespace slipstream
