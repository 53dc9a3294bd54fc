// The addresses that other ranks publish, as text.

#include "base/address.h"
#include "fuzz/input.h"

using slipstream::SocketAddress;
using slipstream::fuzz::expect;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto address = SocketAddress::parse(slipstream::fuzz::Input(data, size).rest());
  if (!address) return 0;
  const auto again = SocketAddress::parse(address->text());
  expect(again && again->same_host(*address) && again->port() == address->port());
  expect(again->text() == address->text());
  return 0;
}
