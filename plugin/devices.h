#pragma once

#include <string>
#include <vector>

#include "options.h"
#include "slipstream/log.h"

namespace slipstream::nccl {

/// A device of NCCL: a network interface, and the addresses on which its comms listen.
struct Device {
  std::string name;
  std::string pci_path;  ///< in /sys; empty for an interface without hardware
  int mbit_per_second = 0;
  std::vector<std::string> addresses;  ///< with the best first
};

/// One device for each interface that the options name. If they name none, there is one device, the
/// interface of the route to the job, which listens on all usable addresses. Throws Error(kConfig)
/// if no address remains. May block in the resolver.
std::vector<Device> find_devices(const Options& options, const Log& log);

}  // namespace slipstream::nccl
