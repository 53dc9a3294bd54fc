#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "slipstream/codec.h"
#include "slipstream/collective.h"
#include "slipstream/dtype.h"

namespace slipstream {

constexpr std::uint32_t kAnyPeer = ~std::uint32_t{0};

/// One call of a collective on one rank. The memory belongs to the caller and must stay as it is
/// until the handle is done.
struct Request {
  Collective collective{};
  /// May equal `output`, without other overlap, for allreduce, broadcast, reduce and gather. For
  /// reduce_scatter, all_gather and scatter the smaller buffer may be this rank's own block of the
  /// larger one, for all_to_all the two are apart; any other overlap of these four is refused.
  const void* input = nullptr;
  void* output = nullptr;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  /// Elements: of the whole buffer for allreduce, broadcast, reduce, send, receive; of one rank's
  /// block for reduce_scatter, all_gather, gather, scatter, all_to_all.
  std::uint64_t count = 0;
  std::vector<std::uint64_t> send_counts;     ///< all_to_all_v: elements for each rank
  std::vector<std::uint64_t> receive_counts;  ///< all_to_all_v, all_gather_v: from each rank
  std::uint32_t root = 0;  ///< rank in the group: root, or peer of a send or receive (or kAnyPeer)
  std::uint32_t tag = 0;   ///< send, receive
  std::string name;        ///< the tensor, for messages and the timeline
  int priority = 0;        ///< higher goes first where both could
  std::uint32_t segment_bytes = 0;  ///< the largest piece that one write carries; 0: the engine's
  std::chrono::nanoseconds timeout{0};  ///< 0: the engine's
  Algorithm algorithm = Algorithm::kAuto;
  /// What float32 sums and averages become on the wire between hosts; see codec.h. It does not
  /// apply within a host, to other dtypes, operations and collectives, below 32 KB, or where hosts
  /// have different numbers of ranks: those are exact.
  Codec codec = Codec::kNone;
  /// Error feedback: `count` floats, zero at first, in which what the codec loses is kept for the
  /// next operation. The caller keeps them as long as the buffer's elements mean the same.
  float* residual = nullptr;
  bool waits_soon = false;  ///< the caller will wait() at once: no other thread need be woken
};

/// "allreduce sum float32 x 1024", for messages.
std::string describe(const Request& request);

}  // namespace slipstream
