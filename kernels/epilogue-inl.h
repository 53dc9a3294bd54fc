// What becomes of sums before they are written. Included once per SIMD target.
#if defined(SLIPSTREAM_KERNELS_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLIPSTREAM_KERNELS_EPILOGUE_INL_H_
#undef SLIPSTREAM_KERNELS_EPILOGUE_INL_H_
#else
#define SLIPSTREAM_KERNELS_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include "activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {

using Lane = hn::CappedTag<float, 16>;

template <Number kNumber>
HWY_INLINE hn::Vec<Lane> read(const std::uint8_t* at) {
  const hn::RebindToUnsigned<Lane> du;
  if constexpr (kNumber == Number::kFloat32) {
    return hn::LoadU(Lane(), reinterpret_cast<const float*>(at));
  } else if constexpr (kNumber == Number::kBFloat16) {
    const hn::Rebind<std::uint16_t, Lane> d16;
    const auto half = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(at));
    return hn::BitCast(Lane(), hn::ShiftLeft<16>(hn::PromoteTo(du, half)));
  } else {
    const hn::Rebind<std::uint8_t, Lane> d8;
    return hn::ConvertTo(Lane(), hn::PromoteTo(hn::RebindToSigned<Lane>(), hn::LoadU(d8, at)));
  }
}

/// The upper halves, rounded to nearest, ties to even.
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, Lane>> halves_of(hn::Vec<Lane> value) {
  const hn::RebindToUnsigned<Lane> du;
  const auto bits = hn::BitCast(du, value);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto half = hn::ShiftRight<16>(hn::Add(bits, hn::Add(even, hn::Set(du, 0x7FFF))));
  return hn::DemoteTo(hn::Rebind<std::uint16_t, Lane>(),
                      hn::BitCast(hn::RebindToSigned<Lane>(), half));
}

/// Rounded to nearest, ties to even. Bytes take values in [0, 255]; larger ones become 255.
template <Number kNumber>
HWY_INLINE void write(hn::Vec<Lane> value, std::uint8_t* at) {
  if constexpr (kNumber == Number::kFloat32) {
    hn::StoreU(value, Lane(), reinterpret_cast<float*>(at));
  } else if constexpr (kNumber == Number::kBFloat16) {
    hn::StoreU(halves_of(value), hn::Rebind<std::uint16_t, Lane>(),
               reinterpret_cast<std::uint16_t*>(at));
  } else {
#if HWY_TARGET == HWY_AVX3
    const __m512i whole = _mm512_cvtps_epi32(value.raw);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtusepi32_epi8(whole));
#else
    const hn::Rebind<std::uint8_t, Lane> d8;
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(value)), d8, at);
#endif
  }
}

/// Calls `work` with the number as a compile-time constant.
template <class Work>
HWY_INLINE void with_number(Number number, const Work& work) {
  switch (number) {
    case Number::kFloat32:
      return work(std::integral_constant<Number, Number::kFloat32>());
    case Number::kUInt8:
      return work(std::integral_constant<Number, Number::kUInt8>());
    case Number::kBFloat16:
      return work(std::integral_constant<Number, Number::kBFloat16>());
  }
}

HWY_INLINE hn::Vec<Lane> sums_at(const float* sums) { return hn::Load(Lane(), sums); }
HWY_INLINE hn::Vec<Lane> sums_at(const std::int32_t* sums) {
  return hn::ConvertTo(Lane(), hn::Load(hn::RebindToSigned<Lane>(), sums));
}

/// Where rows of sums go, and what is added to them.
struct Rows {
  std::size_t count;
  const std::uint8_t* const* addend;
  std::uint8_t* const* output;
};

template <Activation kActivation, Number kOutput, Epilogue::Adds kAdds, Number kAddend,
          typename Sum>
HWY_INLINE void finish_as(const Epilogue& epilogue, const Sum* HWY_RESTRICT sums, std::size_t pitch,
                          std::size_t columns, std::size_t channel, const Rows rows) {
  const Lane d;
  const auto low = hn::Set(d, epilogue.low), high = hn::Set(d, epilogue.high);
  const auto stretch = hn::Set(d, epilogue.stretch), shift = hn::Set(d, epilogue.shift);
  const auto weight = hn::Set(d, epilogue.addend_weight);
  const Activator<kActivation, kOutput> activation(epilogue);
  // Copies, as the compiler must think that writing bytes changes whatever it has a reference to.
  const float* HWY_RESTRICT scales = epilogue.scale.data() + channel;
  const float* HWY_RESTRICT biases = epilogue.bias.data() + channel;
  const std::size_t count = rows.count;
  const std::uint8_t* const* HWY_RESTRICT addends = rows.addend;
  std::uint8_t* const* HWY_RESTRICT outputs = rows.output;
  for (std::size_t column = 0; column < columns; column += hn::Lanes(d)) {
    const auto scale = hn::Load(d, scales + column), bias = hn::Load(d, biases + column);
    const Sum* HWY_RESTRICT from = sums + column;
#pragma GCC unroll 4
    for (std::size_t row = 0; row < count; ++row, from += pitch) {
      auto value = hn::MulAdd(sums_at(from), scale, bias);
      const auto added = [&]() HWY_ATTR {
        return read<kAddend>(addends[row] + column * size_of(kAddend));
      };
      if constexpr (kAdds == Epilogue::Adds::kBefore) value = hn::MulAdd(added(), weight, value);
      value = activation(d, value);
      if constexpr (kAdds == Epilogue::Adds::kAfter) value = hn::MulAdd(added(), weight, value);
      if constexpr (kActivation != Activation::kNone) value = hn::MulAdd(value, stretch, shift);
      value = hn::Min(hn::Max(value, low), high);
      write<kOutput>(value, outputs[row] + column * size_of(kOutput));
    }
  }
}

/// Writes rows of `columns` sums, the first of which is that of `channel`; each row of sums begins
/// `pitch` sums after the one before.
template <typename Sum>
HWY_NOINLINE void finish(const Epilogue& epilogue, const Sum* sums, std::size_t pitch,
                         std::size_t columns, std::size_t channel, const Rows& rows) {
  using Adds = Epilogue::Adds;
  with_activation(epilogue.activation, [&](auto constant) HWY_ATTR {
    constexpr Activation kActivation = decltype(constant)::value;
    const auto add = [&](auto output, auto adds, auto addend) HWY_ATTR {
      finish_as<kActivation, output(), adds(), addend()>(epilogue, sums, pitch, columns, channel,
                                                         rows);
    };
    with_number(epilogue.output, [&](auto output) HWY_ATTR {
      using Nothing = std::integral_constant<Adds, Adds::kNothing>;
      using Before = std::integral_constant<Adds, Adds::kBefore>;
      using After = std::integral_constant<Adds, Adds::kAfter>;
      using Float = std::integral_constant<Number, Number::kFloat32>;
      if (epilogue.adds == Adds::kNothing) return add(output, Nothing(), Float());
      const bool before = epilogue.adds == Adds::kBefore;
      if constexpr (output() == Number::kFloat32) {
        with_number(epilogue.addend, [&](auto addend) HWY_ATTR {
          before ? add(output, Before(), addend) : add(output, After(), addend);
        });
      } else if (epilogue.addend == Number::kFloat32) {
        before ? add(output, Before(), Float()) : add(output, After(), Float());
      } else {
        before ? add(output, Before(), output) : add(output, After(), output);
      }
    });
  });
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
