#pragma once

#include <bit>
#include <cstdint>

namespace slipstream {

static_assert(std::endian::native == std::endian::little, "frames are little-endian as they stand");

constexpr std::uint16_t kProtocolVersion = 3;
constexpr std::uint32_t kMaxSegmentBytes = 256 * 1024, kMinSegmentBytes = 4096;
/// Bytes; a multiple of the element size of every dtype.
constexpr std::uint32_t kSegmentGrain = 64;

enum class FrameKind : std::uint8_t {
  kSegment = 1,  ///< payload that the receiver asked for; on any stream
  kEager = 2,    ///< a small payload that the receiver did not ask for; on the control stream
  kPost = 3,     ///< "I have posted this operation: send me its segments" (credit)
  kRequest = 4,  ///< "I want to send you this operation's segments"
  kAck = 5,      ///< numbers of segments received, by stream
  kCredit = 6,   ///< eager bytes removed from the pool so far
  kHeartbeat = 7,
  kProbe = 8,           ///< "I wait for this operation: what is your state?"
  kDescribe = 9,        ///< the arguments that this rank passed, as text, after a mismatch
  kAbort = 10,          ///< the group has failed; the payload says why
  kGoodbye = 11,        ///< the rank leaves on purpose
  kStreams = 12,        ///< a plan for streams (offset), from the rank that decides
  kStreamsReport = 13,  ///< result of a plan: its number (step), gain (offset) and wait (sequence)
};
constexpr FrameKind kLastFrameKind = FrameKind::kStreamsReport;

/// The header of every message between two engines: 64 bytes, followed by `length` bytes of
/// payload. A segment is identified by (epoch, group, sequence, step, offset).
struct Frame {
  FrameKind kind{};
  std::uint8_t flags = 0;
  std::uint16_t stream = 0;  ///< for kAck: the stream that is acknowledged
  std::uint32_t length = 0;  ///< payload bytes that follow, <= kMaxSegmentBytes
  std::uint32_t epoch = 0;
  std::uint32_t step = 0;  ///< step of the sender's plan; both sides use the same number
  std::uint64_t group = 0;
  /// Number of the operation in its group; for kAck: the tag of the stream's connection.
  std::uint64_t sequence = 0;
  /// Bytes from the beginning of the step's region; for kAck: the number of segments.
  std::uint64_t offset = 0;
  std::uint64_t fingerprint = 0;  ///< hash of the properties on which all ranks must agree
  std::uint64_t control = 0;      ///< number of this control frame, from 1; 0: not numbered
  std::uint64_t ack = 0;          ///< highest control number that was received from the addressee
};
static_assert(sizeof(Frame) == 64);

/// Bits of Frame::flags.
constexpr std::uint8_t kPointToPoint = 1;  ///< `sequence` counts the messages between the two ranks
constexpr std::uint8_t kAskedFor = 2;      ///< an eager payload that does not count in the pool
constexpr std::uint8_t kAfterStall = 4;    ///< a probe after the sender has reported a stall

}  // namespace slipstream
