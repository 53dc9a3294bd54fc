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

/// The purpose of a connection. A connection for shared memory cannot pass for a TCP stream, nor
/// one without TLS for one with it.
enum class Purpose : std::uint8_t { kTcp = 1, kShm = 2, kTls = 3 };

/// The first message of a connection, as it is sent: who dials whom, and for which stream. Magic
/// and version have the same position in every version of the protocol.
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
  std::uint16_t num_streams = 0;  ///< streams of this pair of ranks, including the control stream
  std::uint64_t renews = 0;       ///< tag of the lost connection of this stream; 0: the first one
  Nonce nonce{};
};
static_assert(sizeof(Hello) == 72);
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
/// Both digests cover their label, the whole Hello, and the Challenge up to the digest. So they
/// cover both nonces, both ranks, the epoch and the versions. The acceptor checks epoch, ranks and
/// stream only once the key is proved: a stranger learns the version and then sees a closed socket,
/// but a rank of the same job learns the exact cause. No byte after the handshake is read. The
/// class works on any stream socket, blocking or not. It never blocks and never raises SIGPIPE.
class Handshake {
 public:
  enum class Progress : std::uint8_t { kPending, kDone, kFailed };

  /// The kind of failure, by what the connector should do next.
  enum class Failure : std::uint8_t {
    kNone,
    kConnection,  ///< closed, reset or too slow: another try may help
    kStranger,    ///< the other end does not belong to this job (or is not Slipstream at all)
    kRefused,  ///< it belongs to this job but cannot have this connection: version, epoch, rank...
  };

  /// The connection that the connector asks for.
  struct Call {
    Purpose purpose = Purpose::kTcp;
    std::uint32_t peer = 0;
    std::uint16_t stream = 0;
    std::uint16_t num_streams = 1;
    std::uint64_t renews = 0;
  };

  /// Checks whether the acceptor has room for the request of a proved connector. Returns "" for
  /// yes, or a reason (cut after 120 characters) that the connector is told.
  using Admit = std::function<std::string(const Hello&)>;

  [[nodiscard]] static Handshake connect(const Identity& self, const Call& call,
                                         TimePoint deadline = Clock::now() + kHandshakeDeadline);
  [[nodiscard]] static Handshake accept(const Identity& self, Purpose purpose, Admit admit = {},
                                        TimePoint deadline = Clock::now() + kHandshakeDeadline);

  /// Continues as far as the socket allows. After kPending, call it again when `fd` is readable (or
  /// writable, see wants_write()), or at the deadline. kDone and kFailed are final.
  Progress advance(int fd);
  /// Whether the next step waits for room in the socket, not for the peer.
  [[nodiscard]] bool wants_write() const noexcept { return sending_; }
  [[nodiscard]] TimePoint deadline() const noexcept { return deadline_; }
  /// The connector's Hello. It is proved once advance() has returned kDone.
  [[nodiscard]] const Hello& hello() const noexcept { return hello_; }
  /// A random number by which both ends know the connection.
  [[nodiscard]] std::uint64_t tag() const noexcept;
  /// A key that nobody but the two ends of this connection can compute. Valid after kDone.
  [[nodiscard]] Digest secret() const;
  /// Whether the acceptor has received a whole Hello, so that the other end is a client of
  /// Slipstream.
  [[nodiscard]] bool greeted() const noexcept { return step_ > Step::kHello; }

  [[nodiscard]] Failure failure() const noexcept { return failure_; }
  /// The reason of a failure, as the end of a sentence whose subject is the peer: "speaks protocol
  /// ...".
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
  bool sending_ = false;            // whether message_ is being written; otherwise it is being read
  std::vector<std::byte> message_;  // of the current step
  std::size_t transferred_ = 0;     // bytes of message_
  std::string refusal_;             // acceptor: the reason that the connector is told
  Failure failure_ = Failure::kNone;
  std::string reason_;
};

}  // namespace slipstream
