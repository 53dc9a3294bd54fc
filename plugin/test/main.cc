#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "world.h"

/// With `--peer role`, the program is the other process of a test.
int main(int argc, char** argv) {
  constexpr int kOverwrites = 0;  // a test may have set them for this process
  ::setenv("SLIPSTREAM_JOB_KEY", "the key of the plugin's tests", kOverwrites);
  ::setenv("SLIPSTREAM_IFACE", "lo", kOverwrites);
  ::setenv("SLIPSTREAM_STREAMS", "4", kOverwrites);
  if (argc == 3 && std::string(argv[1]) == "--peer") return slipstream::nccl::test::play(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
