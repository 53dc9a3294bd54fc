#pragma once

#include <bit>
#include <cstdint>

namespace slipstream {

static_assert(std::endian::native == std::endian::little, "frames are little-endian as they stand");

constexpr std::uint16_t kProtocolVersion = 1;
constexpr std::uint32_t kMaxSegmentBytes = 256 * 1024, kMinSegmentBytes = 4096;
constexpr std::uint32_t kSegmentGrain = 64;  ///< whole elements of every dtype

enum class FrameKind : std::uint8_t {
  kSegment = 1,  ///< payload that the receiver asked for, on any stream
  kEager = 2,    ///< a small payload that nobody asked for, on the control stream
  kPost = 3,     ///< "I have posted this operation: send me its segments" (credit)
  kRequest = 4,  ///< "I want to send you this operation's segments"
  kAck = 5,      ///< counts of segments received, by stream
  kCredit = 6,   ///< eager bytes taken out of the pool so far
  kHeartbeat = 7,
  kProbe = 8,           ///< "I wait for this operation: where are you?"
  kDescribe = 9,        ///< the text of what this rank passed, after a mismatch
  kAbort = 10,          ///< the group has failed; the payload says why
  kGoodbye = 11,        ///< the rank leaves on purpose
  kStreams = 12,        ///< a plan for streams (offset), of the rank that decides
  kStreamsReport = 13,  ///< what came of it: its number (step), gain (offset) and wait (sequence)
};
constexpr FrameKind kLastFrameKind = FrameKind::kStreamsReport;

/// The header of everything that travels between two engines: 64 bytes, then `length` bytes of
/// payload. A segment is identified by (epoch, group, sequence, step, offset).
struct Frame {
  FrameKind kind{};
  std::uint8_t flags = 0;
  std::uint16_t stream = 0;  ///< kAck: the stream that is acknowledged
  std::uint32_t length = 0;  ///< payload bytes that follow, <= kMaxSegmentBytes
  std::uint32_t epoch = 0;
  std::uint32_t step = 0;  ///< of the sender's plan, as both sides name it
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;     ///< of the operation in its group
  std::uint64_t offset = 0;       ///< bytes into the step's region; kAck: count
  std::uint64_t fingerprint = 0;  ///< what all ranks of the operation must agree on
  std::uint64_t control = 0;      ///< number of this control frame, from 1; 0: not numbered
  std::uint64_t ack = 0;          ///< highest control number received from the addressee
};
static_assert(sizeof(Frame) == 64);

/// Bits of Frame::flags.
constexpr std::uint8_t kPointToPoint = 1;  ///< sequence counts the messages of the two ranks
constexpr std::uint8_t kAskedFor = 2;      ///< an eager payload outside of the pool

}  // namespace slipstream
