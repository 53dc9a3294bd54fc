// Measures the in-cache speed of the reduction kernels. Bytes are those of one operand: a reduction
// reads twice and writes once as many. The copy that it is compared with reads and writes them
// once.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "reduce/reduce.h"

namespace slipstream {
namespace {

/// 8 KB x 3 fit the first-level cache, 128 KB x 3 the second.
constexpr std::size_t kSmallBytes = 8 << 10;
constexpr std::size_t kLargeBytes = 128 << 10;

/// Aligned as in the frameworks, with bytes that are ordinary numbers in every dtype, because
/// subnormals are slow on some CPUs.
class Buffer {
 public:
  explicit Buffer(std::size_t size) : bytes_(size + kAlignment, 0x3F) {}
  std::uint8_t* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::vector<std::uint8_t> bytes_;
};

void copy(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  Buffer from(size);
  Buffer to(size);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), size);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void reduce_into_third(benchmark::State& state, DType dtype, ReduceOp op) {
  const auto size = static_cast<std::size_t>(state.range(0));
  Buffer lower(size);
  Buffer upper(size);
  Buffer dst(size);
  for (auto _ : state) {
    reduce(dtype, op, dst.data(), lower.data(), upper.data(), size / size_of(dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.SetLabel(std::string(simd_target()));
}

void divide_by_one(benchmark::State& state, DType dtype) {
  const auto size = static_cast<std::size_t>(state.range(0));
  Buffer data(size);
  for (auto _ : state) {
    divide(dtype, data.data(), size / size_of(dtype), 1);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

std::string title(std::string_view verb, DType dtype) {
  return std::string(verb) + "/" + std::string(name_of(dtype));
}

bool register_all() {
  benchmark::RegisterBenchmark("copy", copy)->Arg(kSmallBytes)->Arg(kLargeBytes);
  for (std::size_t i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kProduct}) {
      if (!is_supported(op, dtype)) continue;
      const std::string name = title(name_of(op), dtype);
      benchmark::RegisterBenchmark(name.c_str(), reduce_into_third, dtype, op)
          ->Arg(kSmallBytes)
          ->Arg(kLargeBytes);
    }
    if (!is_supported(ReduceOp::kAverage, dtype)) continue;
    benchmark::RegisterBenchmark(title("divide", dtype).c_str(), divide_by_one, dtype)
        ->Arg(kLargeBytes);
  }
  return true;
}

const bool kRegistered = register_all();

}  // namespace
}  // namespace slipstream
