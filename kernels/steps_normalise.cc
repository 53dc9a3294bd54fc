#include <algorithm>
#include <array>
#include <cstring>

#include "aligned.h"
#include "steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "steps_normalise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {

/// Computes one vector of a row; `scale` and `shift` begin with those of its first number.
template <Number kTo>
HWY_INLINE void normalise_vector(const std::uint8_t* from, const float* scale, const float* shift,
                                 std::uint8_t* to) {
  const Lane d;
  auto value = hn::MulAdd(read<Number::kUInt8>(from), hn::LoadU(d, scale), hn::LoadU(d, shift));
  if constexpr (kTo == Number::kUInt8) value = hn::Max(value, hn::Zero(d));
  write<kTo>(value, to);
}

/// Computes a row. The `period` numbers of scale and shift repeat; `period` is a multiple of any
/// vector's lanes.
template <Number kTo>
void normalise_as(const std::uint8_t* from, std::size_t size, const float* scale,
                  const float* shift, std::size_t period, std::uint8_t* to) {
  const std::size_t lanes = hn::Lanes(Lane());
  std::size_t at = 0, phase = 0;
  for (; at + lanes <= size; at += lanes) {
    normalise_vector<kTo>(from + at, scale + phase, shift + phase, to + at * size_of(kTo));
    phase = phase + lanes == period ? 0 : phase + lanes;
  }
  if (at == size) return;
  std::array<std::uint8_t, 16> last{};
  std::array<std::uint8_t, 64> result{};
  std::memcpy(last.data(), from + at, size - at);
  normalise_vector<kTo>(last.data(), scale + phase, shift + phase, result.data());
  std::memcpy(to + at * size_of(kTo), result.data(), (size - at) * size_of(kTo));
}

void normalise_row(Number number, const std::uint8_t* from, std::size_t size, const float* scale,
                   const float* shift, std::size_t period, std::uint8_t* to) {
  with_number(number,
              [&](auto target) { normalise_as<target()>(from, size, scale, shift, period, to); });
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(normalise_row);

namespace {

/// Repeats the numbers of the channels until any vector ends at the end of a pixel.
Aligned<float> repeated(const std::vector<float>& channels) {
  constexpr std::size_t kMostLanes = 16;
  Aligned<float> result(channels.size() * kMostLanes);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = channels[i % channels.size()];
  return result;
}

}  // namespace

Step normalise(const Tensor& input, const Tensor& output, const std::vector<float>& scale,
               const std::vector<float>& shift) {
  const Aligned<float> scales = repeated(scale), shifts = repeated(shift);
  return {"normalise", [=](const Memory& memory, Workers& workers) {
            workers.share(input.batch * input.rows, [&](std::size_t line) {
              const std::size_t batch = line / input.rows, row = line % input.rows;
              HWY_DYNAMIC_DISPATCH(normalise_row)
              (output.number, memory.at(input) + input.pitch.at(batch, row, 0),
               input.columns * input.channels, scales.data(), shifts.data(), scales.size(),
               memory.at(output) + output.pitch.at(batch, row, 0));
            });
          }};
}

}  // namespace slipstream::kernels
#endif
