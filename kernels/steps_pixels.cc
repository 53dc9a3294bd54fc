#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "steps_pixels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {

/// The part of a window inside the input, in one direction.
struct Reach {
  std::size_t begin, end;
  Reach(std::size_t output, std::size_t stride, std::size_t before, std::size_t size,
        std::size_t limit) {
    const auto first =
        static_cast<std::ptrdiff_t>(output * stride) - static_cast<std::ptrdiff_t>(before);
    const std::ptrdiff_t last = first + static_cast<std::ptrdiff_t>(size);
    begin = static_cast<std::size_t>(std::max<std::ptrdiff_t>(first, 0));
    end = static_cast<std::size_t>(std::min(last, static_cast<std::ptrdiff_t>(limit)));
  }
};

template <Number kNumber, Pooling kPooling>
void pool_line(const Tensor& input, const Tensor& output, const Window& window, bool count_outside,
               const std::uint8_t* from, std::uint8_t* to, std::size_t line) {
  const Lane d;
  const std::size_t batch = line / output.rows, row = line % output.rows;
  const Reach down(row, window.row_stride, window.above, window.rows, input.rows);
  for (std::size_t column = 0; column < output.columns; ++column) {
    const Reach right(column, window.column_stride, window.left, window.columns, input.columns);
    const std::size_t inside = (down.end - down.begin) * (right.end - right.begin);
    const std::size_t count = count_outside ? window.rows * window.columns : inside;
    const auto share = hn::Set(d, 1.0F / static_cast<float>(count));
    std::uint8_t* at = to + output.pitch.at(batch, row, column);
    for (std::size_t channel = 0; channel < output.channels; channel += hn::Lanes(d)) {
      auto value = kPooling == Pooling::kMax ? hn::Set(d, -std::numeric_limits<float>::infinity())
                                             : hn::Zero(d);
      for (std::size_t y = down.begin; y < down.end; ++y) {
        for (std::size_t x = right.begin; x < right.end; ++x) {
          const auto tap =
              read<kNumber>(from + input.pitch.at(batch, y, x) + channel * size_of(kNumber));
          value = kPooling == Pooling::kMax ? greater(value, tap) : hn::Add(value, tap);
        }
      }
      if (kPooling == Pooling::kMean) value = hn::Mul(value, share);
      write<kNumber>(value, at + channel * size_of(kNumber));
    }
  }
}

void pool(const Tensor& input, const Tensor& output, const Window& window, Pooling kind,
          bool count_outside, const std::uint8_t* from, std::uint8_t* to, std::size_t line) {
  with_number(input.number, [&](auto number) {
    const auto work = kind == Pooling::kMax ? pool_line<number(), Pooling::kMax>
                                            : pool_line<number(), Pooling::kMean>;
    work(input, output, window, count_outside, from, to, line);
  });
}

template <Number kNumber>
void mean_as(const Tensor& input, std::size_t batch, const std::uint8_t* from, float scale,
             float zero, float* to) {
  const Lane d;
  const auto share = hn::Set(d, scale / static_cast<float>(input.rows * input.columns));
  for (std::size_t channel = 0; channel < input.channels; channel += hn::Lanes(d)) {
    auto even = hn::Zero(d), odd = hn::Zero(d);
    for (std::size_t row = 0; row < input.rows; ++row) {
      const std::uint8_t* at = from + input.pitch.at(batch, row, 0) + channel * size_of(kNumber);
      std::size_t column = 0;
      for (; column + 2 <= input.columns; column += 2, at += 2 * input.pitch.pixel) {
        even = hn::Add(even, read<kNumber>(at));
        odd = hn::Add(odd, read<kNumber>(at + input.pitch.pixel));
      }
      if (column < input.columns) even = hn::Add(even, read<kNumber>(at));
    }
    const auto mean = hn::MulAdd(hn::Add(even, odd), share, hn::Set(d, -zero * scale));
    hn::StoreU(mean, d, to + channel);
  }
}

void mean(const Tensor& input, std::size_t batch, const std::uint8_t* from, float scale, float zero,
          float* to) {
  with_number(input.number,
              [&](auto number) { mean_as<number()>(input, batch, from, scale, zero, to); });
}

template <Number kFrom, Number kTo>
void gate_as(const Tensor& input, const Tensor& output, const Gate& how, const std::uint8_t* from,
             const float* factors, std::uint8_t* to, std::size_t line) {
  const Lane d;
  const std::size_t batch = line / input.rows, row = line % input.rows;
  const auto low = hn::Set(d, how.low), high = hn::Set(d, how.high);
  for (std::size_t channel = 0; channel < input.channels; channel += hn::Lanes(d)) {
    const auto factor = hn::Mul(hn::LoadU(d, factors + channel), hn::Set(d, how.scale));
    auto bias = hn::Set(d, how.shift);  // infinity times an offset of 0 would be NaN
    if (how.offset != 0.0F) bias = hn::MulAdd(factor, hn::Set(d, how.offset), bias);
    const std::uint8_t* at = from + input.pitch.at(batch, row, 0) + channel * size_of(kFrom);
    std::uint8_t* out = to + output.pitch.at(batch, row, 0) + channel * size_of(kTo);
    for (std::size_t column = 0; column < input.columns; ++column) {
      const auto value = hn::MulAdd(read<kFrom>(at), factor, bias);
      write<kTo>(clip(low, value, high), out);
      at += input.pitch.pixel;
      out += output.pitch.pixel;
    }
  }
}

void gate_line(const Tensor& input, const Tensor& output, const Gate& how, const std::uint8_t* from,
               const float* factors, std::uint8_t* to, std::size_t line) {
  with_number(input.number, [&](auto source) {
    with_number(output.number, [&](auto target) {
      gate_as<source(), target()>(input, output, how, from, factors, to, line);
    });
  });
}

template <Number kNumber>
float read_one(const std::uint8_t* at) {
  if constexpr (kNumber == Number::kUInt8) return *at;
  std::uint32_t bits = 0;
  std::memcpy(reinterpret_cast<std::uint8_t*>(&bits) + 4 - size_of(kNumber), at, size_of(kNumber));
  return std::bit_cast<float>(bits);
}

template <Number kNumber>
void write_one(float value, std::uint8_t* at) {
  if constexpr (kNumber == Number::kUInt8) {
    *at = static_cast<std::uint8_t>(std::nearbyint(std::min(std::max(value, 0.0F), 255.0F)));
    return;
  }
  auto bits = std::bit_cast<std::uint32_t>(value);
  if constexpr (kNumber == Number::kBFloat16) {
    bits = std::isnan(value) ? 0x7FC00000 : bits + 0x7FFF + (bits >> 16 & 1);
  }
  std::memcpy(at, reinterpret_cast<std::uint8_t*>(&bits) + 4 - size_of(kNumber), size_of(kNumber));
}

/// Copies the innermost dimension.
template <Number kFrom, Number kTo>
void copy_numbers(const Copy& how, const std::uint8_t* from, std::uint8_t* to) {
  const std::ptrdiff_t from_step = how.from.back(), to_step = how.to.back();
  const std::size_t size = how.sizes.back();
  const bool plain = how.scale == 1.0F && how.shift == 0.0F;
  std::size_t at = 0;
  if (from_step == static_cast<std::ptrdiff_t>(size_of(kFrom)) &&
      to_step == static_cast<std::ptrdiff_t>(size_of(kTo))) {
    if (kFrom == kTo && plain) {
      std::memcpy(to, from, size * size_of(kTo));
      return;
    }
    const Lane d;
    const auto scale = hn::Set(d, how.scale), shift = hn::Set(d, how.shift);
    for (; at + hn::Lanes(d) <= size; at += hn::Lanes(d)) {
      auto value = hn::MulAdd(read<kFrom>(from + at * size_of(kFrom)), scale, shift);
      if (kTo == Number::kUInt8) value = hn::Max(value, hn::Zero(d));
      write<kTo>(value, to + at * size_of(kTo));
    }
  }
  for (; at < size; ++at) {
    const std::uint8_t* one = from + static_cast<std::ptrdiff_t>(at) * from_step;
    std::uint8_t* out = to + static_cast<std::ptrdiff_t>(at) * to_step;
    write_one<kTo>(read_one<kFrom>(one) * how.scale + how.shift, out);
  }
}

/// Turns a row of three planes into a row of pixels of three colours.
template <Number kTo>
void interleave(const Copy& how, const std::uint8_t* from, std::uint8_t* to) {
  const Lane d;
  const std::size_t columns = how.sizes[how.sizes.size() - 2];
  const std::ptrdiff_t plane = how.from.back();
  const auto scale = hn::Set(d, how.scale), shift = hn::Set(d, how.shift);
  const auto read_at = [&](std::size_t color, std::size_t column) HWY_ATTR {
    const std::uint8_t* at = from + static_cast<std::ptrdiff_t>(color) * plane + column * 4;
    return hn::MulAdd(read<Number::kFloat32>(at), scale, shift);
  };
  std::size_t column = 0;
  for (; column + hn::Lanes(d) <= columns; column += hn::Lanes(d)) {
    const auto red = read_at(0, column), green = read_at(1, column), blue = read_at(2, column);
    if constexpr (kTo == Number::kFloat32) {
      hn::StoreInterleaved3(red, green, blue, d, reinterpret_cast<float*>(to) + 3 * column);
    } else if constexpr (kTo == Number::kBFloat16) {
      const hn::Rebind<std::uint16_t, Lane> d16;
      hn::StoreInterleaved3(halves_of(red), halves_of(green), halves_of(blue), d16,
                            reinterpret_cast<std::uint16_t*>(to) + 3 * column);
    } else {
      const hn::Rebind<std::uint8_t, Lane> d8;
      const auto zero = hn::Zero(d);
      const auto byte = [&](auto value) HWY_ATTR {
        return hn::DemoteTo(d8, hn::NearestInt(hn::Max(value, zero)));
      };
      hn::StoreInterleaved3(byte(red), byte(green), byte(blue), d8, to + 3 * column);
    }
  }
  for (; column < columns; ++column) {
    copy_numbers<Number::kFloat32, kTo>(how, from + column * 4, to + 3 * column * size_of(kTo));
  }
}

bool is_interleave(Number from, Number to, const Copy& how) {
  const std::size_t last = how.sizes.size() - 1;
  const auto size = static_cast<std::ptrdiff_t>(size_of(to));
  return last > 0 && how.sizes[last] == 3 && from == Number::kFloat32 && how.from[last - 1] == 4 &&
         how.to[last] == size && how.to[last - 1] == 3 * size;
}

void copy_plane(Number to_number, const Copy& how, const std::uint8_t* from, std::uint8_t* to) {
  with_number(to_number, [&](auto target) { interleave<target()>(how, from, to); });
}

void copy_row(Number from_number, Number to_number, const Copy& how, const std::uint8_t* from,
              std::uint8_t* to) {
  with_number(from_number, [&](auto source) {
    with_number(to_number, [&](auto target) { copy_numbers<source(), target()>(how, from, to); });
  });
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(pool);
HWY_EXPORT(mean);
HWY_EXPORT(gate_line);
HWY_EXPORT(copy_row);
HWY_EXPORT(copy_plane);
HWY_EXPORT(is_interleave);

Step pooling(const Tensor& input, const Tensor& output, const Window& window, Pooling kind,
             bool count_outside) {
  return {"pooling", [=](const Memory& memory, Workers& workers) {
            workers.share(output.batch * output.rows, [&](std::size_t line) {
              HWY_DYNAMIC_DISPATCH(pool)
              (input, output, window, kind, count_outside, memory.at(input), memory.at(output),
               line);
            });
          }};
}

Step global_mean(const Tensor& input, const Tensor& output, float scale, float zero) {
  return {"global mean", [=](const Memory& memory, Workers& workers) {
            workers.share(input.batch, [&](std::size_t batch) {
              std::uint8_t* to = memory.at(output) + output.pitch.at(batch, 0, 0);
              HWY_DYNAMIC_DISPATCH(mean)
              (input, batch, memory.at(input), scale, zero, reinterpret_cast<float*>(to));
            });
          }};
}

Step gate(const Tensor& input, const Tensor& factors, const Tensor& output, const Gate& how) {
  return {"gate", [=](const Memory& memory, Workers& workers) {
            workers.share(input.batch * input.rows, [&](std::size_t line) {
              const std::uint8_t* factor =
                  memory.at(factors) + factors.pitch.at(line / input.rows, 0, 0);
              HWY_DYNAMIC_DISPATCH(gate_line)
              (input, output, how, memory.at(input), reinterpret_cast<const float*>(factor),
               memory.at(output), line);
            });
          }};
}

Step copy(const Tensor& input, const Tensor& output, const Copy& how) {
  const bool planes = HWY_DYNAMIC_DISPATCH(is_interleave)(input.number, output.number, how);
  const std::size_t inner = planes ? 2 : 1;  // dimensions that one call copies
  std::size_t rows = 1;
  for (std::size_t i = 0; i + inner < how.sizes.size(); ++i) rows *= how.sizes[i];
  return {"copy", [=](const Memory& memory, Workers& workers) {
            const std::size_t parts = std::min(rows, workers.threads() == 1 ? 1 : std::size_t{16});
            workers.share(parts, [&](std::size_t part) {
              for (std::size_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
                const std::uint8_t* from = memory.at(input);
                std::uint8_t* to = memory.at(output);
                for (std::size_t rest = row, i = how.sizes.size() - inner; i-- > 0;) {
                  const auto index = static_cast<std::ptrdiff_t>(rest % how.sizes[i]);
                  from += index * how.from[i];
                  to += index * how.to[i];
                  rest /= how.sizes[i];
                }
                if (planes) {
                  HWY_DYNAMIC_DISPATCH(copy_plane)(output.number, how, from, to);
                } else {
                  HWY_DYNAMIC_DISPATCH(copy_row)(input.number, output.number, how, from, to);
                }
              }
            });
          }};
}

}  // namespace slipstream::kernels
#endif
