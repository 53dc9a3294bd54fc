// The convolution for one SIMD target and level; see levels.h. It is included once for each, so it
// has no include guard.
#if KERNELS_LEVEL == 2
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni,avx512bf16")
namespace slipstream::kernels::N_AVX3_BF16 {
namespace hn = hwy::HWY_NAMESPACE;
using namespace HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the same at level 0
#elif KERNELS_LEVEL == 1
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
namespace slipstream::kernels::N_AVX3_VNNI {
namespace hn = hwy::HWY_NAMESPACE;
using namespace HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the same at level 0
#else
HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {
#endif

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
using U8 = hn::Repartition<std::uint8_t, F32>;

constexpr std::size_t kLanes = HWY_MIN(HWY_LANES(float), 16);
constexpr std::size_t kVectors = 16 / kLanes;  // per group of 16 columns

/// Multiplies one unit of the input (four bytes) in every lane by one vector of weights; `kUnits`
/// is the number of units that one step takes.
struct Float32 {
  using D = F32;
  static constexpr std::size_t kUnits = 1;
  using Weight = hn::Vec<F32>;
  HWY_INLINE static hn::Vec<F32> load(const std::uint8_t* unit) {
    float value;
    std::memcpy(&value, unit, 4);
    return hn::Set(F32(), value);
  }
  HWY_INLINE static hn::Vec<F32> weights(const std::uint8_t* at) {
    return hn::Load(F32(), reinterpret_cast<const float*>(at));
  }
  HWY_INLINE static hn::Vec<F32> add(hn::Vec<F32> sum, hn::Vec<F32> unit, hn::Vec<F32> weight) {
    return hn::MulAdd(unit, weight, sum);
  }
};

struct Int8 {
  using D = I32;
  static constexpr std::size_t kUnits = 1;
  HWY_INLINE static hn::Vec<I32> load(const std::uint8_t* unit) {
    std::int32_t value;
    std::memcpy(&value, unit, 4);
    return hn::Set(I32(), value);
  }
#if HWY_TARGET == HWY_AVX2
  // Written as instructions that read weights from memory: 12 sums leave no registers for the
  // weights, and gcc 12 moves the sums of intrinsics to memory and back.
  using Weight = const __m256i*;
  HWY_INLINE static Weight weights(const std::uint8_t* at) {
    return reinterpret_cast<const __m256i*>(at);
  }
  HWY_INLINE static hn::Vec<I32> add(hn::Vec<I32> sum, hn::Vec<I32> unit, Weight weight) {
    __m256i pairs;
    asm("vpmaddubsw %[weight], %[unit], %[pairs]\n\t"
        "vpmaddwd %[ones], %[pairs], %[pairs]\n\t"
        "vpaddd %[pairs], %[sum], %[sum]"
        : [sum] "+x"(sum.raw), [pairs] "=&x"(pairs)
        : [unit] "x"(unit.raw), [weight] "m"(*weight), [ones] "x"(_mm256_set1_epi16(1)));
    return sum;
  }
#else
  using Weight = hn::Vec<I32>;
  HWY_INLINE static Weight weights(const std::uint8_t* at) {
    return hn::Load(I32(), reinterpret_cast<const std::int32_t*>(at));
  }
  HWY_INLINE static hn::Vec<I32> add(hn::Vec<I32> sum, hn::Vec<I32> unit, Weight weight) {
#if KERNELS_LEVEL >= 1
    // Written as an instruction, because gcc 12 copies the sums of the intrinsic to other registers
    // and back.
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(unit.raw), "v"(weight.raw));
    return sum;
#elif HWY_TARGET == HWY_AVX3
    const __m512i pairs = _mm512_maddubs_epi16(unit.raw, weight.raw);
    return hn::Add(sum, hn::Vec<I32>{_mm512_madd_epi16(pairs, _mm512_set1_epi16(1))});
#else
    const I32 d;
    const auto byte = hn::Set(d, 0xFF);
    const auto product = [&](auto units, auto weights) {
      return hn::Mul(hn::And(units, byte), hn::ShiftRight<24>(weights));
    };
    sum = hn::Add(sum, product(unit, hn::ShiftLeft<24>(weight)));
    sum = hn::Add(sum, product(hn::ShiftRight<8>(unit), hn::ShiftLeft<16>(weight)));
    sum = hn::Add(sum, product(hn::ShiftRight<16>(unit), hn::ShiftLeft<8>(weight)));
    return hn::Add(sum, product(hn::ShiftRight<24>(unit), weight));
#endif
  }
#endif
};

#if HWY_TARGET == HWY_AVX2
/// Takes two units, the sum of whose products fits 16 bits: 8 instructions in place of two times 6.
struct Int8Twos {
  using D = I32;
  using Weight = Int8::Weight;
  static constexpr std::size_t kUnits = 2;
  struct Two {
    __m256i first, second;
  };
  HWY_INLINE static Two load(const std::uint8_t* unit) {
    return {Int8::load(unit).raw, Int8::load(unit + 4).raw};
  }
  HWY_INLINE static Weight weights(const std::uint8_t* at) { return Int8::weights(at); }
  HWY_INLINE static hn::Vec<I32> add(hn::Vec<I32> sum, Two units, Weight weight) {
    __m256i pairs, others;
    asm("vpmaddubsw %[weight], %[first], %[pairs]\n\t"
        "vpmaddubsw %[next], %[second], %[others]\n\t"
        "vpaddw %[others], %[pairs], %[pairs]\n\t"
        "vpmaddwd %[ones], %[pairs], %[pairs]\n\t"
        "vpaddd %[pairs], %[sum], %[sum]"
        : [sum] "+x"(sum.raw), [pairs] "=&x"(pairs), [others] "=&x"(others)
        : [first] "x"(units.first), [second] "x"(units.second), [weight] "m"(weight[0]),
          [next] "m"(weight[2]), [ones] "x"(_mm256_set1_epi16(1)));
    return sum;
  }
};
#endif

#if KERNELS_LEVEL == 2
struct BFloat16 {
  using D = F32;
  static constexpr std::size_t kUnits = 1;
  using Weight = hn::Vec<F32>;
  HWY_INLINE static hn::Vec<F32> load(const std::uint8_t* unit) { return Float32::load(unit); }
  HWY_INLINE static hn::Vec<F32> weights(const std::uint8_t* at) { return Float32::weights(at); }
  HWY_INLINE static hn::Vec<F32> add(hn::Vec<F32> sum, hn::Vec<F32> unit, hn::Vec<F32> weight) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(unit.raw), "v"(weight.raw));
    return sum;
  }
};
#else
/// For CPUs without products of bfloat16: the two numbers of a unit become float32.
struct BFloat16 {
  using D = F32;
  static constexpr std::size_t kUnits = 1;
  using Weight = hn::Vec<F32>;
  HWY_INLINE static hn::Vec<F32> load(const std::uint8_t* unit) { return Float32::load(unit); }
  HWY_INLINE static hn::Vec<F32> weights(const std::uint8_t* at) { return Float32::weights(at); }
  HWY_INLINE static hn::Vec<F32> low(hn::Vec<F32> pair) {
    return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::BitCast(hn::RebindToUnsigned<F32>(), pair)));
  }
  HWY_INLINE static hn::Vec<F32> high(hn::Vec<F32> pair) {
    const hn::RebindToUnsigned<F32> du;
    return hn::BitCast(F32(), hn::And(hn::BitCast(du, pair), hn::Set(du, 0xFFFF0000U)));
  }
  HWY_INLINE static hn::Vec<F32> add(hn::Vec<F32> sum, hn::Vec<F32> unit, hn::Vec<F32> weight) {
    return hn::MulAdd(high(unit), high(weight), hn::MulAdd(low(unit), low(weight), sum));
  }
};
#endif

/// Computes the sums of `kRows` pixels and `kGroups` groups of 16 columns, and stores them in
/// `sums` row by row.
template <class Multiply, std::size_t kRows, std::size_t kGroups>
HWY_INLINE void sum_tile(const std::vector<Run>& runs, const std::uint8_t* const* pixels,
                         const std::uint8_t* HWY_RESTRICT weights, void* HWY_RESTRICT sums) {
  constexpr std::size_t kWide = kGroups * kVectors;
  const typename Multiply::D d;
  using V = hn::Vec<typename Multiply::D>;
  V total[kRows][kWide];
#pragma GCC unroll 16
  for (std::size_t row = 0; row < kRows; ++row) {
#pragma GCC unroll 16
    for (std::size_t wide = 0; wide < kWide; ++wide) total[row][wide] = hn::Zero(d);
  }
  // There is at least one run, with at least one unit. Loops that rely on it keep the sums in
  // registers.
  const Run* run = runs.data();
  const Run* const end = run + runs.size();
  do {
    const std::uint8_t* at[kRows];
    for (std::size_t row = 0; row < kRows; ++row) at[row] = pixels[row] + run->offset;
    constexpr auto kStep = static_cast<std::ptrdiff_t>(Multiply::kUnits);
    const auto units = static_cast<std::ptrdiff_t>(run->units);
    std::ptrdiff_t unit = 0;
    do {
      typename Multiply::Weight weight[kWide];
      for (std::size_t wide = 0; wide < kWide; ++wide) {
        weight[wide] = Multiply::weights(weights + wide * kLanes * 4);
      }
      weights += kGroups * 64 * kStep;
      for (std::size_t row = 0; row < kRows; ++row) {
        const auto value = Multiply::load(at[row] + unit * 4);
        for (std::size_t wide = 0; wide < kWide; ++wide) {
          total[row][wide] = Multiply::add(total[row][wide], value, weight[wide]);
        }
      }
    } while ((unit += kStep) != units);
  } while (++run != end);
  auto* out = static_cast<hn::TFromD<typename Multiply::D>*>(sums);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t wide = 0; wide < kWide; ++wide) {
      hn::Store(total[row][wide], d, out + (row * kWide + wide) * kLanes);
    }
  }
}

// AVX-512 has 32 registers, which must fit the sums, one row of weights and one unit of input. AVX2
// has 16, and reads the weights from memory.
constexpr std::size_t kGroupsAtOnce = HWY_TARGET <= HWY_AVX3 ? 4 : 1;
template <class Multiply>
constexpr std::size_t rows_at_once(std::size_t groups) {
  if (HWY_TARGET > HWY_AVX3) return Multiply::kUnits == 1 ? 6 : 4;
  return groups == 4 ? 6 : groups == 1 ? 12 : 8;
}
/// Largest number of units for which kMostRows pixels are finished together. That costs less per
/// pixel. Longer sums, however, leave time to read and write between few pixels, which finishing
/// many at once would not use. Chosen by hand, not measured.
constexpr std::size_t kFewUnits = 63;
static_assert(kGroupsAtOnce * 16 <= kMostColumns);

template <class Multiply, std::size_t kGroups>
void sum_rows(std::size_t rows, const std::vector<Run>& runs, const std::uint8_t* const* pixels,
              const std::uint8_t* weights, void* sums) {
  constexpr std::size_t kRows = rows_at_once<Multiply>(kGroups), kFew = kRows / 3;
  if (rows <= kFew) {
    sum_tile<Multiply, kFew, kGroups>(runs, pixels, weights, sums);
  } else if (rows <= 2 * kFew) {
    sum_tile<Multiply, 2 * kFew, kGroups>(runs, pixels, weights, sums);
  } else {
    sum_tile<Multiply, kRows, kGroups>(runs, pixels, weights, sums);
  }
}

/// As many addresses as one vector has; the last vector may write beyond `count`.
using Addresses = hn::CappedTag<std::uint64_t, 8>;

struct Places {
  alignas(64) const std::uint8_t* input[kMostRows + 8];
  alignas(64) const std::uint8_t* addend[kMostRows + 8];
  alignas(64) std::uint8_t* output[kMostRows + 8];
};

/// A sequence of addresses at equal distances.
class Steps {
 public:
  explicit Steps(std::ptrdiff_t by) : by_(by) {
    for (std::size_t i = 0; i < 8; ++i) offsets_[i] = static_cast<std::uint64_t>(by) * i;
  }
  /// Writes the next `count` addresses, beginning with `at`, which is advanced.
  template <typename Byte>
  HWY_INLINE void take(std::size_t count, Byte*& at, Byte** places) const {
    const Addresses d;
    const auto offsets = hn::Load(d, offsets_);
    Byte* here = at;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
      const auto first = hn::Set(d, reinterpret_cast<std::uintptr_t>(here));
      hn::StoreU(hn::Add(first, offsets), d, reinterpret_cast<std::uint64_t*>(places + i));
      here += by_ * static_cast<std::ptrdiff_t>(hn::Lanes(d));
    }
    at += by_ * static_cast<std::ptrdiff_t>(count);
  }

 private:
  std::ptrdiff_t by_;
  alignas(64) std::uint64_t offsets_[8];
};

/// Walks through the output pixels in order, and computes the addresses of each one's first tap,
/// addend and output.
class Walk {
 public:
  Walk(const Convolution& of, std::size_t pixel, const std::uint8_t* input,
       const std::uint8_t* addend, std::uint8_t* output)
      : of_(of),
        input_(input),
        addend_(addend),
        output_(output),
        input_steps_(of.input.pixel),
        addend_steps_(of.addend.pixel),
        output_steps_(of.output.pixel) {
    column_ = pixel % of.columns;
    row_ = pixel / of.columns % of.rows;
    batch_ = pixel / of.columns / of.rows;
    go();
  }
  /// Sets the addresses of the next `count` pixels.
  HWY_INLINE void take(std::size_t count, Places& places) {
    std::size_t done = 0;
    while (done < count) {
      const std::size_t here = HWY_MIN(count - done, of_.columns - column_);
      input_steps_.take(here, at_input_, places.input + done);
      output_steps_.take(here, at_output_, places.output + done);
      if (of_.addend.pixel != 0) addend_steps_.take(here, at_addend_, places.addend + done);
      done += here;
      column_ += here;
      if (column_ == of_.columns) next_row();
    }
  }

 private:
  void next_row() {
    column_ = 0;
    if (++row_ == of_.rows) {
      row_ = 0;
      ++batch_;
    }
    go();
  }
  void go() {
    at_input_ = input_ + of_.input.at(batch_, row_, column_);
    at_addend_ = addend_ + of_.addend.at(batch_, row_, column_);
    at_output_ = output_ + of_.output.at(batch_, row_, column_);
  }

  const Convolution& of_;
  const std::uint8_t *input_, *addend_, *at_input_, *at_addend_;
  std::uint8_t *output_, *at_output_;
  Steps input_steps_, addend_steps_, output_steps_;
  std::size_t column_, row_, batch_;
};

template <class Multiply, std::size_t kGroups>
void convolve_panel(const Convolution& of, const Buffers& buffers, std::size_t begin,
                    std::size_t end, std::size_t channel, std::size_t units) {
  constexpr std::size_t kRows = rows_at_once<Multiply>(kGroups);
  constexpr std::size_t kColumns = kGroups * 16;
  alignas(64) hn::TFromD<typename Multiply::D> sums[kMostRows * kColumns];
  const std::ptrdiff_t output_size = static_cast<std::ptrdiff_t>(size_of(of.epilogue.output));
  const std::ptrdiff_t addend_size = static_cast<std::ptrdiff_t>(size_of(of.epilogue.addend));
  const auto first = static_cast<std::ptrdiff_t>(channel);
  Walk walk(of, begin, buffers.input, buffers.addend + first * addend_size,
            buffers.output + first * output_size);
  const std::uint8_t* all = buffers.weights == nullptr ? of.weights.data() : buffers.weights;
  const std::uint8_t* weights = all + channel * units * 4;
  const std::size_t chunk = units > kFewUnits ? kRows : kMostRows;
  Places places;
  for (std::size_t pixel = begin; pixel < end; pixel += chunk) {
    const std::size_t count = std::min(chunk, end - pixel);
    walk.take(count, places);
    for (std::size_t row = 0; row < count; row += kRows) {
      const std::size_t rows = std::min(kRows, count - row);
      for (std::size_t i = rows; i < kRows; ++i) places.input[row + i] = places.input[row];
      sum_rows<Multiply, kGroups>(rows, of.runs, places.input + row, weights,
                                  sums + row * kColumns);
    }
    const Rows at{count, places.addend, places.output, buffers.scale, buffers.bias};
    if constexpr (std::is_same_v<typename Multiply::D, I32>) {
      if (buffers.ranges != nullptr) {
        const Ranges ranges{of.totals.data() + channel, buffers.ranges + 2 * pixel};
        finish(of.epilogue, sums, kColumns, channel, at, ranges);
        continue;
      }
    }
    finish(of.epilogue, sums, kColumns, kColumns, channel, at);
  }
}

/// Number of pixels for which all panels are computed before the next pixels. Panels read the same
/// input and write side by side. If pixels are small, both should stay in the cache.
inline std::size_t block_of(const Convolution& of, std::size_t pixels) {
  if (kGroupsAtOnce > 1) return pixels;
  constexpr std::ptrdiff_t kNear = 96 << 10;  // bytes. Chosen by hand, not measured.
  const std::ptrdiff_t both = std::abs(of.input.pixel) + std::abs(of.output.pixel);
  const auto fit = static_cast<std::size_t>(kNear / std::max<std::ptrdiff_t>(both, 1));
  return std::max(fit / kMostRows, std::size_t{1}) * kMostRows;
}

template <class Multiply>
void convolve_all(const Convolution& of, const Buffers& buffers, std::size_t begin, std::size_t end,
                  std::size_t first, std::size_t last) {
  std::size_t units = 0;
  for (const Run& run : of.runs) units += run.units;
  const Panels panels(of.channels, kGroupsAtOnce);
  const std::size_t block = block_of(of, end - begin);
  const auto compute = [&](std::size_t panel, std::size_t from, std::size_t to) {
    const std::size_t channel = panels.begin(panel) * 16;
    const std::size_t groups = panels.begin(panel + 1) - panels.begin(panel);
    const auto work = [&](auto constant) {
      convolve_panel<Multiply, constant>(of, buffers, from, to, channel, units);
    };
    if (groups == 1) work(std::integral_constant<std::size_t, 1>());
    if constexpr (kGroupsAtOnce > 1) {
      if (groups == 2) work(std::integral_constant<std::size_t, 2>());
      if (groups == 3) work(std::integral_constant<std::size_t, 3>());
      if (groups == 4) work(std::integral_constant<std::size_t, 4>());
    }
  };
  for (std::size_t from = begin; from < end; from += block) {
    const std::size_t to = std::min(from + block, end);
    for (std::size_t panel = first; panel < last; ++panel) compute(panel, from, to);
  }
}

inline void convolve(const Convolution& of, const Buffers& buffers, std::size_t begin,
                     std::size_t end, std::size_t first, std::size_t last) {
  if (of.operand == Operand::kFloat32) {
    convolve_all<Float32>(of, buffers, begin, end, first, last);
  } else if (of.operand == Operand::kBFloat16) {
    convolve_all<BFloat16>(of, buffers, begin, end, first, last);
#if HWY_TARGET == HWY_AVX2
  } else if (of.adds_twos) {
    convolve_all<Int8Twos>(of, buffers, begin, end, first, last);
#endif
  } else {
    convolve_all<Int8>(of, buffers, begin, end, first, last);
  }
}

inline std::size_t groups_at_once() { return kGroupsAtOnce; }

}  // namespace
HWY_AFTER_NAMESPACE();
