// Measures the wire codecs on one core, in the second-level cache and in main memory. Bytes are
// those of the float32 side; the copy that they are compared with reads and writes as many.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "codec/wire.h"
#include "reduce/reduce.h"

namespace slipstream {
namespace {

constexpr std::size_t kCachedBytes = 256 << 10;
constexpr std::size_t kLargeBytes = 64 << 20;

/// Memory that is aligned to 64 bytes, as in the frameworks.
template <typename T>
class Aligned {
 public:
  explicit Aligned(std::size_t count) : bytes_(count * sizeof(T) + kAlignment) {}
  T* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return reinterpret_cast<T*>(bytes_.data() + (kAlignment - address % kAlignment) % kAlignment);
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::vector<std::byte> bytes_;
};

/// The buffers that one rank encodes or decodes.
struct Buffers {
  Buffers(benchmark::State& state, Codec codec)
      : count(static_cast<std::size_t>(state.range(0)) / sizeof(float)),
        values(count),
        others(count),
        bytes(encoded_bytes(codec, count)) {
    std::mt19937 random{7};
    std::normal_distribution<float> normal(0, 1e-3F);
    std::generate_n(values.data(), count, [&] { return normal(random); });
    encode(codec, values.data(), count, bytes.data());
  }
  std::size_t count;
  Aligned<float> values;
  Aligned<float> others;
  Aligned<std::byte> bytes;
};

template <class Step>
void measure(benchmark::State& state, Step step) {
  for (auto _ : state) {
    step();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.SetLabel(std::string(simd_target()));
}

void copy(benchmark::State& state) {
  Buffers b(state, Codec::kNone);
  measure(state, [&] { std::memcpy(b.others.data(), b.values.data(), b.count * sizeof(float)); });
}

void encoding(benchmark::State& state, Codec codec) {
  Buffers b(state, codec);
  measure(state, [&] { encode(codec, b.values.data(), b.count, b.bytes.data()); });
}

void encoding_with_residual(benchmark::State& state, Codec codec) {
  Buffers b(state, codec);
  measure(state, [&] {
    encode_with_residual(codec, b.values.data(), b.others.data(), b.count, b.bytes.data());
  });
}

void decoding(benchmark::State& state, Codec codec) {
  Buffers b(state, codec);
  measure(state, [&] { decode(codec, b.bytes.data(), b.count, b.others.data()); });
}

void adding(benchmark::State& state, Codec codec) {
  Buffers b(state, codec);
  measure(state, [&] { decode_add(codec, b.bytes.data(), b.count, b.others.data()); });
}

void register_one(const std::string& verb, Codec codec, void (*run)(benchmark::State&, Codec)) {
  const std::string name = verb + "/" + std::string(name_of(codec));
  benchmark::RegisterBenchmark(name.c_str(), run, codec)->Arg(kCachedBytes)->Arg(kLargeBytes);
}

bool register_all() {
  benchmark::RegisterBenchmark("copy", copy)->Arg(kCachedBytes)->Arg(kLargeBytes);
  for (std::size_t i = 0; i < kNumCodecs; ++i) {
    const auto codec = static_cast<Codec>(i);
    register_one("encode", codec, encoding);
    register_one("encode_with_residual", codec, encoding_with_residual);
    register_one("decode", codec, decoding);
    register_one("decode_add", codec, adding);
  }
  return true;
}

const bool kRegistered = register_all();

}  // namespace
}  // namespace slipstream
