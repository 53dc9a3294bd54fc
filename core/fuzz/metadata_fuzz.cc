// The descriptions of tensors that other ranks send in a negotiation.

#include <string>
#include <string_view>

#include "fuzz/input.h"
#include "negotiation/metadata.h"
#include "slipstream/error.h"

using slipstream::fuzz::expect;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes = slipstream::fuzz::Input(data, size).rest();
  std::string_view left = bytes;
  try {
    while (!left.empty()) {
      const std::string_view before = left;
      const slipstream::Metadata metadata = slipstream::read(left);
      expect(left.size() < before.size());
      expect(!describe(metadata).empty());
      std::string again;
      write(again, metadata);
      expect(again == before.substr(0, before.size() - left.size()));
    }
  } catch (const slipstream::Error&) {
    // The description is invalid, which the error says.
  }
  return 0;
}
