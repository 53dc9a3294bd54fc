#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "slipstream/codec.h"
#include "slipstream/collective.h"
#include "slipstream/dtype.h"

namespace slipstream {

class GatedRing;

constexpr std::uint32_t kAnyPeer = ~std::uint32_t{0};

/// One call of a collective on one rank. The memory belongs to the caller and must not change until
/// the handle is done.
struct Request {
  Collective collective{};
  /// For allreduce, broadcast, reduce and gather, `input` may equal `output` but must not overlap
  /// it otherwise. For reduce_scatter, all_gather and scatter, the smaller buffer may be this
  /// rank's own block of the larger one. For all_to_all the buffers must not overlap. Any other
  /// overlap is refused.
  const void* input = nullptr;
  void* output = nullptr;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  /// Number of elements of the whole buffer for allreduce, broadcast, reduce, send and receive, and
  /// of one rank's block for reduce_scatter, all_gather, gather, scatter and all_to_all.
  std::uint64_t count = 0;
  std::vector<std::uint64_t> send_counts;  ///< all_to_all_v: elements for each rank
  /// all_to_all_v, all_gather_v: elements from each rank.
  std::vector<std::uint64_t> receive_counts;
  /// Root, or peer of a send or receive (or kAnyPeer), as rank in the group.
  std::uint32_t root = 0;
  std::uint32_t tag = 0;  ///< send, receive
  std::string name;       ///< name of the tensor, for messages and the timeline
  /// The operation with the higher priority proceeds if two could.
  int priority = 0;
  std::uint32_t segment_bytes = 0;      ///< largest piece that one write carries; 0: the engine's
  std::chrono::nanoseconds timeout{0};  ///< 0: the engine's
  Algorithm algorithm = Algorithm::kAuto;
  /// The encoding of float32 sums and averages on the wire between hosts; see codec.h. Data are
  /// sent exactly within a host, for other dtypes, operations and collectives, below 32 KB, and if
  /// hosts have different numbers of ranks.
  Codec codec = Codec::kNone;
  /// Error feedback: `count` floats, initially zero, that keep what the codec loses for the next
  /// operation. The caller keeps them as long as the elements of the buffer mean the same.
  float* residual = nullptr;
  /// If set, the memory lies in the slot of `chunk`. The operation starts when a device has filled
  /// the slot, and releases the slot when it ends. Later collectives of the group start after it.
  GatedRing* ring = nullptr;
  std::uint32_t chunk = 0;  ///< sequence number of the chunk in the ring
  /// Bytes of the longest row of the whole tensor of a gated operation, equal on all ranks.
  std::uint64_t whole_bytes = 0;
  /// The caller will call wait() at once, so no other thread must be woken.
  bool waits_soon = false;
};

/// "allreduce 'grad.3'", for messages.
std::string title_of(const Request& request);
/// "allreduce sum float32 x 1024", for messages.
std::string describe(const Request& request);

}  // namespace slipstream
