// The handle of a listening comm, which NCCL brings from another rank.

#include <cstring>
#include <string>
#include <vector>

#include "fuzz/input.h"
#include "handle.h"
#include "slipstream/error.h"

using slipstream::fuzz::expect;
using slipstream::nccl::Handle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  slipstream::fuzz::Input input(data, size);
  auto handle = input.number<Handle>();
  if (input.coin()) handle.magic = Handle::kMagic;
  try {
    const std::vector<std::string> endpoints = endpoints_of(handle);
    expect(handle.magic == Handle::kMagic && endpoints.size() <= slipstream::nccl::kMaxEndpoints);
  } catch (const slipstream::Error&) {
    expect(handle.magic != Handle::kMagic);
  }
  return 0;
}
