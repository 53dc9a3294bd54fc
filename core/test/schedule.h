#pragma once

// Random programs of collectives on devices, with random worlds and faults: what the schedule
// fuzzer runs. A schedule depends on its seed only.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/fake/fake_device.h"
#include "device/staging.h"
#include "engine/options.h"
#include "slipstream/request.h"
#include "topology/layout.h"
#include "transport/fake/fake_network.h"

namespace slipstream::test {

/// A call that the members of a group make, each in its place of the program.
struct ScheduledCall {
  enum class Kind : std::uint8_t {
    kCollective,
    kMessage,   ///< from one member to another
    kExchange,  ///< an all_to_all of uneven parts, as messages
  };
  Kind kind = Kind::kCollective;
  Request request;          ///< without memory; `root` of a message is its sender
  std::uint32_t group = 0;  ///< number of the group
  std::uint32_t to = 0;     ///< receiver of a message, as rank in the group
  bool on_host = false;     ///< on memory of the CPU, in the same group
  bool in_place = false;    ///< the result takes the place of the input
  bool has_residual = false;
  /// For an exchange, in elements: parts[a][b] is sent by rank a to rank b.
  std::vector<std::vector<std::uint64_t>> parts;
};

/// The lengths of a rank's memory in a call, in bytes.
struct CallSizes {
  std::size_t input = 0, output = 0;
};
CallSizes sizes_of(const ScheduledCall& call, std::uint32_t rank, std::uint32_t size);
/// Where the parts of an exchange begin in a rank's input and output, in bytes.
struct PartOffsets {
  std::vector<std::size_t> sent, received;
};
PartOffsets offsets_of(const ScheduledCall& call, std::uint32_t rank);
/// Whether the call gives this rank of the group a result.
bool has_result(const ScheduledCall& call, std::uint32_t rank);
/// Fills the input of a rank, so that its sums are exact in every order and in every codec.
void fill(std::span<std::byte> input, const ScheduledCall& call, std::uint32_t rank,
          std::uint64_t seed);
/// Values of error feedback, which the next allreduce adds to the input.
std::vector<float> residual_of(const ScheduledCall& call, std::uint32_t rank);
std::string describe(const ScheduledCall& call);

/// A fault. `rank` is of the world; the fault happens before this rank makes call number `call`.
struct Trouble {
  enum class Kind : std::uint8_t {
    kNone,
    kKill,     ///< all connections of the rank are cut
    kAbort,    ///< the rank aborts the group
    kClose,    ///< the rank closes the group, with operations in flight
    kLeave,    ///< the rank closes its engine
    kCall,     ///< a call of the rank's device fails
    kCommand,  ///< a command of the rank's device fails
  };
  Kind kind = Kind::kNone;
  std::uint32_t rank = 0, group = 0;
  std::size_t call = 0;
  std::uint64_t device_number = 0;  ///< number of the call or command of the device
};
std::string describe(const Trouble& trouble);

struct Schedule {
  enum class Network : std::uint8_t { kFake, kShm, kTcp };
  std::uint64_t seed = 0;
  std::uint32_t size = 2;
  Network network = Network::kFake;
  FakeOptions fake;  ///< of a fake network
  EngineOptions engine;
  std::vector<Place> places;
  FakeDeviceOptions device;
  std::uint32_t num_streams = 1;  ///< of each device, in which tensors are made and read
  StagingOptions staging;
  std::vector<std::vector<std::uint32_t>> groups;  ///< ranks of the world
  std::vector<ScheduledCall> calls;
  Trouble trouble;
};
Schedule draw_schedule(std::uint64_t seed);

}  // namespace slipstream::test
