#include "devices.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "handle.h"
#include "slipstream/error.h"
#include "topology/interfaces.h"

namespace slipstream::nccl {
namespace {

constexpr int kUnknownSpeed = 10'000;  // as NCCL's sockets assume it

std::filesystem::path folder_of(const std::string& interface) {
  return std::filesystem::path("/sys/class/net") / interface;
}

/// The path of the PCI device, by which NCCL finds the GPUs that are near.
std::string pci_path_of(const std::string& interface) {
  std::error_code error;
  const auto path = std::filesystem::canonical(folder_of(interface) / "device", error);
  return error ? "" : path.string();
}

int speed_of(const std::string& interface) {
  int mbit = 0;
  std::ifstream(folder_of(interface) / "speed") >> mbit;
  return mbit > 0 ? mbit : kUnknownSpeed;
}

std::vector<AddressCandidate> addresses_of(const Options& options, const InterfaceFilter& filter) {
  try {
    return choose_addresses(filter, options.towards);
  } catch (const Error& error) {
    if (!options.interfaces_are_nccls) throw;
    fail(error.kind(), error.what(), "; SLIPSTREAM_IFACE is not set, so NCCL_SOCKET_IFNAME counts");
  }
}

}  // namespace

std::vector<Device> find_devices(const Options& options, const Log& log) {
  const InterfaceFilter filter = InterfaceFilter::parse(options.interfaces);
  std::vector<Device> devices;
  for (const AddressCandidate& each : addresses_of(options, filter)) {
    if (each.address.is_link_local()) continue;  // its scope means nothing to a peer
    auto device = std::ranges::find(devices, each.interface, &Device::name);
    if (filter.names.empty() && !devices.empty()) device = devices.begin();
    if (device == devices.end()) {
      devices.push_back(
          {each.interface, pci_path_of(each.interface), speed_of(each.interface), {}});
      device = devices.end() - 1;
      log(LogLevel::kInfo, "device ", devices.size() - 1, " is ", each.interface, ", ",
          each.address.host(), " (", each.reason, ")");
    }
    if (device->addresses.size() < kMaxEndpoints) device->addresses.push_back(each.address.host());
  }
  if (!devices.empty()) return devices;
  fail(ErrorKind::kConfig,
       "this host has only link-local addresses, which a peer cannot dial; give an interface "
       "another address, or name another interface with SLIPSTREAM_IFACE");
}

}  // namespace slipstream::nccl
