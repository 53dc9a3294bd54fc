#include "program.h"

#include <chrono>

#include "tiny.h"

namespace slipstream::kernels {
namespace {

/// Bytes behind the memory of a program, because kernels read whole vectors and so a little beyond
/// the last number of a tensor.
constexpr std::size_t kSlack = 4096;

/// The thread's block of memory for a program, which is kept for the next run: a new block would
/// cost a page fault for every page.
std::uint8_t* block_of(std::size_t bytes) {
  thread_local Aligned<std::uint8_t> block;
  if (block.size() < bytes + kSlack) block.assign(bytes + kSlack, 0);
  return block.data();
}

Memory memory_of(std::size_t bytes, const std::vector<std::uint8_t*>& buffers) {
  std::vector<std::uint8_t*> all{block_of(bytes)};
  all.insert(all.end(), buffers.begin(), buffers.end());
  return Memory(std::move(all));
}

}  // namespace

void Program::run(const std::vector<std::uint8_t*>& buffers, Workers& workers) const {
  const TinyAsZero tiny;
  const Memory memory = memory_of(bytes_, buffers);
  for (const Step& step : steps_) step.run(memory, workers);
}

std::vector<double> Program::profile(const std::vector<std::uint8_t*>& buffers,
                                     Workers& workers) const {
  using Clock = std::chrono::steady_clock;
  const TinyAsZero tiny;
  const Memory memory = memory_of(bytes_, buffers);
  std::vector<double> seconds;
  for (const Step& step : steps_) {
    const auto begin = Clock::now();
    step.run(memory, workers);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return seconds;
}

}  // namespace slipstream::kernels
