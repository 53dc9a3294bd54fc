#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "transport/identity.h"
#include "transport/tcp/traffic.h"

namespace slipstream::nccl {

/// The options of the plugin, from the environment of the process. src/slipstream/settings declares
/// the variables.
struct Options {
  JobKey key{};
  std::string interfaces;  ///< filter in NCCL's syntax; empty: the interface of the route
  bool interfaces_are_nccls = false;  ///< whether NCCL_SOCKET_IFNAME is their source
  std::string towards;  ///< a host of the job, to which the route is looked up; or empty
  std::uint16_t num_streams = 8;
  std::uint32_t segment_bytes = 128 * 1024;
  bool tls = false;  ///< whether connections are encrypted; equal on all ranks
  Traffic traffic;
  Clock::duration connect_deadline = 120s;
  std::uint32_t num_threads = 0;      ///< that move data beside NCCL's own
  std::optional<std::uint32_t> rank;  ///< for messages

  /// Throws Error(kConfig) if a value is not allowed or there is no job key.
  static Options from_environment();
};

/// The name of this process for the messages of its peers: "rank 3 on gpu-2 (process 17)".
std::string name_of_this_process(const Options& options);

}  // namespace slipstream::nccl
