// The last operations on sums before they are written. Included once per SIMD target.
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

/// The most sums that are finished together.
constexpr std::size_t kMostRows = 48, kMostColumns = 64;

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

/// The upper 16 bits, rounded to nearest, ties to even. NaN stays NaN, whatever its lower bits.
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, Lane>> halves_of(hn::Vec<Lane> value) {
  const hn::RebindToUnsigned<Lane> du;
  const auto bits = hn::BitCast(du, value);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto half = hn::ShiftRight<16>(hn::Add(bits, hn::Add(even, hn::Set(du, 0x7FFF))));
  const auto kept = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), hn::Set(du, 0x7FC0), half);
  return hn::DemoteTo(hn::Rebind<std::uint16_t, Lane>(),
                      hn::BitCast(hn::RebindToSigned<Lane>(), kept));
}

/// Writes a vector, rounded to nearest, ties to even. For bytes the values must be 0 or more;
/// values above 255 become 255.
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

/// The addresses to which rows of sums are written, and of the numbers that are added to them.
struct Rows {
  std::size_t count;
  const std::uint8_t* const* addend;
  std::uint8_t* const* output;
  const float *scale, *bias;  ///< numbers of all channels
};

/// Finishes and writes rows of `columns` sums, the first of which belongs to `channel`. A row
/// begins `pitch` sums after the row before. Compiled in epilogue.cc for every target.
void finish(const Epilogue& epilogue, const float* sums, std::size_t pitch, std::size_t columns,
            std::size_t channel, const Rows& rows);
void finish(const Epilogue& epilogue, const std::int32_t* sums, std::size_t pitch,
            std::size_t columns, std::size_t channel, const Rows& rows);

/// The real numbers that summed bytes represent, if each row has a range of its own.
struct Ranges {
  const float* totals;   ///< sum of each column's weights
  const float* of_rows;  ///< ranges of the rows, as in Buffers
};
/// Does the same for such sums. The rows are contiguous, and no more than those of a tile.
void finish(const Epilogue& epilogue, const std::int32_t* sums, std::size_t columns,
            std::size_t channel, const Rows& rows, const Ranges& ranges);

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
