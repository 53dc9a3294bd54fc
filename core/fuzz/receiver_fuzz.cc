// The frames that peers with the job key send to the engine: fitting ones, and ones that break the
// protocol.

#include "fuzz/input.h"
#include "fuzz/lone_rank.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kMostSteps = 200;
  slipstream::fuzz::Input input(data, size);
  slipstream::fuzz::LoneRank rank(input);
  for (int step = 0; step < kMostSteps && !input.empty(); ++step) {
    const std::uint32_t choice = input.below(8);
    if (choice < 2) {
      rank.submit();
    } else if (choice < 7) {
      rank.deliver();
    } else {
      rank.disturb();
    }
    rank.turn();
  }
  slipstream::fuzz::expect(rank.sum() != ~std::uint64_t{0});  // so that the bytes are read
  return 0;
}
