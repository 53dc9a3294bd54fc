#include "epilogue.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "epilogue.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "activation-inl.h"
#include "epilogue-inl.h"
#include "levels.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {

HWY_INLINE hn::Vec<Lane> sums_at(const float* sums) { return hn::Load(Lane(), sums); }
HWY_INLINE hn::Vec<Lane> sums_at(const std::int32_t* sums) {
  return hn::ConvertTo(Lane(), hn::Load(hn::RebindToSigned<Lane>(), sums));
}

/// The addend of a sum. Its format is a compile-time constant (Known), there is none (Nothing), or
/// it is known at run time (Any). `kClips` is true if results are scaled and clipped.
template <Number kNumber>
struct Known {
  static constexpr bool kAdds = true, kClips = true;
  HWY_INLINE hn::Vec<Lane> operator()(const std::uint8_t* row, std::size_t column) const {
    return read<kNumber>(row + column * size_of(kNumber));
  }
};
struct Nothing {
  static constexpr bool kAdds = false, kClips = true;
};
struct NothingWhole {
  static constexpr bool kAdds = false, kClips = false;
};
struct Any {
  static constexpr bool kAdds = true, kClips = true;
  Number number;
  HWY_INLINE hn::Vec<Lane> operator()(const std::uint8_t* row, std::size_t column) const {
    const std::uint8_t* at = row + column * size_of(number);
    if (number == Number::kUInt8) return read<Number::kUInt8>(at);
    if (number == Number::kBFloat16) return read<Number::kBFloat16>(at);
    return read<Number::kFloat32>(at);
  }
};

/// Writes values in a format. Activations need to be only as precise as the format kFineness.
template <Number kOutput, Number kFineness = kOutput>
struct Writer {
  static constexpr Number kNumber = kOutput, kExact = kFineness;
  static constexpr std::size_t kVectors = 1;  // vectors that are written at once
  HWY_INLINE void operator()(const hn::Vec<Lane> (&values)[1], std::uint8_t* at) const {
    write<kOutput>(values[0], at);
  }
};
#if HWY_TARGET == HWY_AVX3
/// Writes one or two vectors as bfloat16 with one instruction, on CPUs that have it.
template <std::size_t kCount>
struct HalfWriter {
  static constexpr Number kNumber = Number::kBFloat16, kExact = kNumber;
  static constexpr std::size_t kVectors = kCount;
  HWY_INLINE void operator()(const hn::Vec<Lane> (&values)[kCount], std::uint8_t* at) const {
    if constexpr (kCount == 1) {
      __m256i halves;
      asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(values[0].raw));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), halves);
    } else {
      __m512i halves;
      asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(values[1].raw), "v"(values[0].raw));
      _mm512_storeu_si512(at, halves);
    }
  }
};

/// Writes 64 bytes at once; values must be in [0, 255].
struct BytesWriter {
  static constexpr Number kNumber = Number::kUInt8, kExact = kNumber;
  static constexpr std::size_t kVectors = 4;
  HWY_INLINE void operator()(const hn::Vec<Lane> (&values)[4], std::uint8_t* at) const {
    const auto whole = [&](std::size_t i) HWY_ATTR { return _mm512_cvtps_epi32(values[i].raw); };
    const __m512i front = _mm512_packs_epi32(whole(0), whole(1));
    const __m512i back = _mm512_packs_epi32(whole(2), whole(3));
    // Both instructions pack 128 bits at a time, so the order is four bytes of each vector in turn.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_packus_epi16(front, back);
    _mm512_storeu_si512(at, _mm512_permutexvar_epi32(order, bytes));
  }
};
#elif HWY_TARGET == HWY_AVX2
/// Writes 16 bytes at once; values must be in [0, 255].
struct BytesWriter {
  static constexpr Number kNumber = Number::kUInt8, kExact = kNumber;
  static constexpr std::size_t kVectors = 2;
  HWY_INLINE void operator()(const hn::Vec<Lane> (&values)[2], std::uint8_t* at) const {
    const __m256i first = _mm256_cvtps_epi32(values[0].raw);
    const __m256i second = _mm256_cvtps_epi32(values[1].raw);
    // The instruction packs 128 bits at a time, so the middle quarters have to be swapped.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xD8);
    const __m128i front = _mm256_castsi256_si128(words);
    const __m128i back = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm_packus_epi16(front, back));
  }
};
#endif

template <Activation kActivation, class Writer, class Addend, typename Sum>
HWY_INLINE void finish_as(const Epilogue& epilogue, const Writer writer, const Addend addend,
                          const Sum* HWY_RESTRICT sums, std::size_t pitch, std::size_t columns,
                          std::size_t channel, const Rows rows) {
  const Lane d;
  const auto low = hn::Set(d, epilogue.low), high = hn::Set(d, epilogue.high);
  const auto stretch = hn::Set(d, epilogue.stretch), shift = hn::Set(d, epilogue.shift);
  const auto weight = hn::Set(d, epilogue.addend_weight);
  const bool before = epilogue.adds == Epilogue::Adds::kBefore;
  const Activator<kActivation, Writer::kExact> activation(epilogue);
  // These are copies, because the compiler must assume that writing bytes changes anything behind a
  // reference.
  const float* HWY_RESTRICT scales = rows.scale + channel;
  const float* HWY_RESTRICT biases = rows.bias + channel;
  const std::size_t count = rows.count;
  const std::uint8_t* const* HWY_RESTRICT addends = rows.addend;
  std::uint8_t* const* HWY_RESTRICT outputs = rows.output;
  constexpr std::size_t kVectors = Writer::kVectors;
  for (std::size_t column = 0; column < columns; column += kVectors * hn::Lanes(d)) {
    hn::Vec<Lane> scale[kVectors], bias[kVectors];
    for (std::size_t i = 0; i < kVectors; ++i) {
      scale[i] = hn::Load(d, scales + column + i * hn::Lanes(d));
      bias[i] = hn::Load(d, biases + column + i * hn::Lanes(d));
    }
    const Sum* HWY_RESTRICT from = sums + column;
#pragma GCC unroll 2
    for (std::size_t row = 0; row < count; ++row, from += pitch) {
      hn::Vec<Lane> values[kVectors];
      for (std::size_t i = 0; i < kVectors; ++i) {
        const std::size_t at = column + i * hn::Lanes(d);
        auto value = hn::MulAdd(sums_at(from + i * hn::Lanes(d)), scale[i], bias[i]);
        if constexpr (kActivation == Activation::kNone) {
          if constexpr (Addend::kAdds) value = hn::MulAdd(addend(addends[row], at), weight, value);
        } else if constexpr (Addend::kAdds) {
          if (before) value = hn::MulAdd(addend(addends[row], at), weight, value);
          value = activation(d, value);
          if (!before) value = hn::MulAdd(addend(addends[row], at), weight, value);
        } else {
          value = activation(d, value);
        }
        if constexpr (Addend::kClips) {
          if (kActivation != Activation::kNone) value = hn::MulAdd(value, stretch, shift);
          value = clip(low, value, high);
        }
        values[i] = value;
      }
      writer(values, outputs[row] + column * size_of(Writer::kNumber));
    }
  }
}

/// Calls `work` with the writer of the epilogue's output.
template <class Work>
HWY_INLINE void with_writer(const Epilogue& epilogue, [[maybe_unused]] std::size_t columns,
                            const Work& work) {
#if HWY_TARGET == HWY_AVX3
  if (epilogue.output == Number::kBFloat16 && level() == 2) {
    return columns % 32 == 0 ? work(HalfWriter<2>()) : work(HalfWriter<1>());
  }
#endif
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  constexpr std::size_t kAtOnce = BytesWriter::kVectors * hn::MaxLanes(Lane());
  if (epilogue.output == Number::kUInt8 && columns % kAtOnce == 0) return work(BytesWriter());
#endif
  with_number(epilogue.output, [&](auto output) HWY_ATTR { work(Writer<output()>()); });
}

/// True if the results of the activation are written without further operations.
inline bool writes_whole(const Epilogue& epilogue) {
  using Limits = std::numeric_limits<float>;
  return epilogue.output != Number::kUInt8 && epilogue.adds == Epilogue::Adds::kNothing &&
         epilogue.stretch == 1.0F && epilogue.shift == 0.0F &&
         epilogue.low == -Limits::infinity() && epilogue.high == Limits::infinity();
}

/// On AVX-512 the activation for bytes is piecewise linear, which is wrong by more than half a step
/// of a small range, so the one for bfloat16 is used.
using CoarseWriter =
    Writer<Number::kFloat32, HWY_TARGET == HWY_AVX3 ? Number::kBFloat16 : Number::kUInt8>;

/// Without an activation, each format of the addend has its own loop. With one there is a single
/// loop, because the activation takes longer than the test of the format.
template <typename Sum>
HWY_INLINE void finish_sums(const Epilogue& epilogue, const Sum* sums, std::size_t pitch,
                            std::size_t columns, std::size_t channel, const Rows& rows) {
  with_writer(epilogue, columns, [&](auto writer) HWY_ATTR {
    constexpr Number kOutput = decltype(writer)::kNumber;
    with_activation(epilogue.activation, [&](auto activation) HWY_ATTR {
      const auto add = [&](auto addend) HWY_ATTR {
        finish_as<activation()>(epilogue, writer, addend, sums, pitch, columns, channel, rows);
      };
      constexpr bool kIsCurved =
          activation() == Activation::kSilu || activation() == Activation::kGelu;
      if constexpr (kIsCurved && kOutput == Number::kFloat32) {
        if (epilogue.coarse && writes_whole(epilogue)) {
          return finish_as<activation()>(epilogue, CoarseWriter(), NothingWhole(), sums, pitch,
                                         columns, channel, rows);
        }
      }
      if constexpr (kOutput != Number::kUInt8) {
        if (writes_whole(epilogue)) return add(NothingWhole());
      }
      if (epilogue.adds == Epilogue::Adds::kNothing) return add(Nothing());
      if constexpr (activation() == Activation::kNone) {
        if (epilogue.addend == Number::kFloat32) return add(Known<Number::kFloat32>());
        if (epilogue.addend == kOutput) return add(Known<kOutput>());
      }
      add(Any{epilogue.addend});
    });
  });
}

void finish(const Epilogue& epilogue, const float* sums, std::size_t pitch, std::size_t columns,
            std::size_t channel, const Rows& rows) {
  finish_sums(epilogue, sums, pitch, columns, channel, rows);
}

void finish(const Epilogue& epilogue, const std::int32_t* sums, std::size_t pitch,
            std::size_t columns, std::size_t channel, const Rows& rows) {
  finish_sums(epilogue, sums, pitch, columns, channel, rows);
}

void finish(const Epilogue& epilogue, const std::int32_t* sums, std::size_t columns,
            std::size_t channel, const Rows& rows, const Ranges& ranges) {
  const Lane d;
  alignas(64) float real[kMostRows * kMostColumns];
  for (std::size_t row = 0; row < rows.count; ++row) {
    const auto scale = hn::Set(d, ranges.of_rows[2 * row]);
    const auto low = hn::Set(d, ranges.of_rows[2 * row + 1]);
    for (std::size_t column = 0; column < columns; column += hn::Lanes(d)) {
      const std::size_t at = row * columns + column;
      const auto total = hn::Mul(low, hn::Load(d, ranges.totals + column));
      hn::Store(hn::MulAdd(sums_at(sums + at), scale, total), d, real + at);
    }
  }
  finish_sums(epilogue, real, columns, columns, channel, rows);
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
