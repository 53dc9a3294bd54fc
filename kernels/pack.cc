#include "pack.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pack.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3

/// Transposes 16 rows of 16 units.
HWY_INLINE void turn(__m512i* rows) {
  __m512i pairs[16];
  for (std::size_t i = 0; i < 16; i += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    const __m512i high01 = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]);
    pairs[i] = _mm512_unpacklo_epi64(low01, low23);
    pairs[i + 1] = _mm512_unpackhi_epi64(low01, low23);
    pairs[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    pairs[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const __m512i even01 = _mm512_shuffle_i32x4(pairs[i], pairs[4 + i], 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(pairs[i], pairs[4 + i], 0xDD);
    const __m512i even23 = _mm512_shuffle_i32x4(pairs[8 + i], pairs[12 + i], 0x88);
    const __m512i odd23 = _mm512_shuffle_i32x4(pairs[8 + i], pairs[12 + i], 0xDD);
    rows[i] = _mm512_shuffle_i32x4(even01, even23, 0x88);
    rows[4 + i] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    rows[8 + i] = _mm512_shuffle_i32x4(even01, even23, 0xDD);
    rows[12 + i] = _mm512_shuffle_i32x4(odd01, odd23, 0xDD);
  }
}

void pack_columns(const std::uint8_t* from, std::ptrdiff_t channel_step, std::size_t channels,
                  std::size_t units, std::uint8_t* to, std::size_t wide) {
  for (std::size_t channel = 0; channel < wide; channel += 16, to += 64) {
    const std::size_t count = channels - std::min(channels, channel);
    const std::uint8_t* column = from + static_cast<std::ptrdiff_t>(channel) * channel_step;
    for (std::size_t unit = 0; unit < units; unit += 16) {
      const std::size_t here = std::min(units - unit, std::size_t{16});
      const auto mask = static_cast<__mmask16>((1U << here) - 1);
      __m512i rows[16];
      for (std::size_t i = 0; i < 16; ++i) {
        const std::uint8_t* at = column + static_cast<std::ptrdiff_t>(i) * channel_step + unit * 4;
        rows[i] = i < count ? _mm512_maskz_loadu_epi32(mask, at) : _mm512_setzero_si512();
      }
      turn(rows);
      for (std::size_t i = 0; i < here; ++i)
        _mm512_store_si512(to + (unit + i) * wide * 4, rows[i]);
    }
  }
}

#else

/// Packs channels whose units are contiguous, into panels of `wide` columns.
void pack_columns(const std::uint8_t* from, std::ptrdiff_t channel_step, std::size_t channels,
                  std::size_t units, std::uint8_t* to, std::size_t wide) {
  for (std::size_t unit = 0; unit < units; ++unit, to += wide * 4, from += 4) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      std::memcpy(to + channel * 4, from + static_cast<std::ptrdiff_t>(channel) * channel_step, 4);
    }
    std::memset(to + channels * 4, 0, (wide - channels) * 4);
  }
}

#endif

/// Packs two rows as units, 16 channels at a time; without `second` its numbers are zeros.
void pack_pair(const std::uint8_t* first, const std::uint8_t* second, std::size_t wide,
               std::uint8_t* to) {
  const hn::CappedTag<std::uint32_t, 16> d;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  const auto at = [&](const std::uint8_t* row, std::size_t channel) HWY_ATTR {
    return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(row) + channel));
  };
  for (std::size_t channel = 0; channel < wide; channel += hn::Lanes(d)) {
    auto unit = at(first, channel);
    if (second != nullptr) unit = hn::Or(unit, hn::ShiftLeft<16>(at(second, channel)));
    hn::Store(unit, d, reinterpret_cast<std::uint32_t*>(to) + channel);
  }
}

/// Rounds a lane to its upper 16 bits in place, to nearest, ties to even; NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V upper_half(D d, hn::Vec<hn::Rebind<float, D>> value) {
  const V bits = hn::BitCast(d, value);
  const V even = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const V rounded = hn::Add(bits, hn::Add(even, hn::Set(d, 0x7FFF)));
  const V kept =
      hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(value)), hn::Set(d, 0x7FC00000), rounded);
  return hn::And(kept, hn::Set(d, 0xFFFF0000U));
}

/// Multiplies the `count` numbers of a unit's channels by the factor, or by two factors if they are
/// bfloat16.
void multiply_unit(const std::uint8_t* unit, std::size_t count, bool halves, const float* factors,
                   std::uint8_t* multiplied) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  for (std::size_t at = 0; at < count * 4; at += hn::Lanes(d) * 4) {
    auto* out = reinterpret_cast<float*>(multiplied + at);
    const auto numbers = hn::Load(d, reinterpret_cast<const float*>(unit + at));
    if (!halves) {
      hn::Store(hn::Mul(numbers, hn::Set(d, *factors)), d, out);
      continue;
    }
    const auto bits = hn::BitCast(du, numbers);
    const auto low = hn::BitCast(d, hn::ShiftLeft<16>(bits));
    const auto high = hn::BitCast(d, hn::And(bits, hn::Set(du, 0xFFFF0000U)));
    const auto first = upper_half(du, hn::Mul(low, hn::Set(d, factors[0])));
    const auto second = upper_half(du, hn::Mul(high, hn::Set(d, factors[1])));
    hn::Store(hn::BitCast(d, hn::Or(second, hn::ShiftRight<16>(first))), d, out);
  }
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(pack_columns);
HWY_EXPORT(pack_pair);
HWY_EXPORT(multiply_unit);

namespace {

/// Packs channels that are contiguous, unit by unit.
void pack_rows(const std::uint8_t* from, std::ptrdiff_t unit_step, std::size_t channels,
               std::size_t units, std::uint8_t* to, std::size_t wide) {
  for (std::size_t unit = 0; unit < units; ++unit, to += wide * 4, from += unit_step) {
    std::memcpy(to, from, channels * 4);
    std::memset(to + channels * 4, 0, (wide - channels) * 4);
  }
}

}  // namespace

Aligned<std::uint8_t> pack(const Matrix& matrix) {
  Aligned<std::uint8_t> packed((matrix.channels + 15) / 16 * 16 * matrix.units * 4);
  pack_into(matrix, packed.data());
  return packed;
}

void pack_into(const Matrix& matrix, std::uint8_t* packed) {
  const Panels panels(matrix.channels, groups_at_once());
  for (std::size_t which = 0; which < panels.count; ++which) {
    const std::size_t first = panels.begin(which) * 16;
    const std::size_t wide = panels.begin(which + 1) * 16 - first;
    const std::size_t count = std::min(wide, matrix.channels - first);
    std::uint8_t* panel = packed + first * matrix.units * 4;
    const std::uint8_t* from =
        matrix.data + static_cast<std::ptrdiff_t>(first) * matrix.channel_step;
    if (matrix.channel_step == 4) {
      pack_rows(from, matrix.unit_step, count, matrix.units, panel, wide);
    } else {
      HWY_DYNAMIC_DISPATCH(pack_columns)
      (from, matrix.channel_step, count, matrix.units, panel, wide);
    }
  }
}

void pack_into(const Halves& halves, std::uint8_t* packed) {
  const Panels panels(halves.channels, groups_at_once());
  for (std::size_t which = 0; which < panels.count; ++which) {
    const std::size_t first = panels.begin(which) * 16;
    const std::size_t wide = panels.begin(which + 1) * 16 - first;
    std::uint8_t* panel = packed + first * halves.units() * 4;
    const std::uint8_t* row = halves.data + first * 2;
    for (std::size_t unit = 0; unit < halves.units(); ++unit, row += 2 * halves.row_step) {
      const std::uint8_t* next = 2 * unit + 1 < halves.rows ? row + halves.row_step : nullptr;
      HWY_DYNAMIC_DISPATCH(pack_pair)(row, next, wide, panel + unit * wide * 4);
    }
  }
}

void multiply_rows(const std::uint8_t* packed, std::size_t channels, std::size_t units, bool halves,
                   const float* factors, std::uint8_t* multiplied) {
  const Panels panels(channels, groups_at_once());
  for (std::size_t which = 0; which < panels.count; ++which) {
    const std::size_t wide = (panels.begin(which + 1) - panels.begin(which)) * 16;
    for (std::size_t unit = 0; unit < units; ++unit, packed += wide * 4, multiplied += wide * 4) {
      HWY_DYNAMIC_DISPATCH(multiply_unit)
      (packed, wide, halves, factors + unit * (halves ? 2 : 1), multiplied);
    }
  }
}

}  // namespace slipstream::kernels
#endif
