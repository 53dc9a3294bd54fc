// The depthwise convolution for one SIMD target and level; see levels.h. It has no include guard.
#if KERNELS_LEVEL == 1
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
namespace slipstream::kernels::N_AVX3_VNNI {
namespace hn = hwy::HWY_NAMESPACE;
using namespace HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the same at level 0
#else
HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {
#endif

#if KERNELS_LEVEL == 1

/// Four neighbouring pixels of 64 channels, transposed so that the four bytes of a channel are one
/// lane.
struct Quads {
  __m512i lanes[4];

  HWY_INLINE Quads(const std::uint8_t* pixel, std::ptrdiff_t step) {
    const __m512i p0 = _mm512_loadu_si512(pixel);
    const __m512i p1 = _mm512_loadu_si512(pixel + step);
    const __m512i p2 = _mm512_loadu_si512(pixel + 2 * step);
    const __m512i p3 = _mm512_loadu_si512(pixel + 3 * step);
    const __m512i low01 = _mm512_unpacklo_epi8(p0, p1), high01 = _mm512_unpackhi_epi8(p0, p1);
    const __m512i low23 = _mm512_unpacklo_epi8(p2, p3), high23 = _mm512_unpackhi_epi8(p2, p3);
    lanes[0] = _mm512_unpacklo_epi16(low01, low23);
    lanes[1] = _mm512_unpackhi_epi16(low01, low23);
    lanes[2] = _mm512_unpacklo_epi16(high01, high23);
    lanes[3] = _mm512_unpackhi_epi16(high01, high23);
  }
};

/// Stores 64 sums in the order of the channels; Quads left them in another one.
HWY_INLINE void store_in_order(const __m512i* sums, std::int32_t* out) {
  const __m512i a = _mm512_shuffle_i32x4(sums[0], sums[1], 0x88);
  const __m512i b = _mm512_shuffle_i32x4(sums[0], sums[1], 0xDD);
  const __m512i c = _mm512_shuffle_i32x4(sums[2], sums[3], 0x88);
  const __m512i d = _mm512_shuffle_i32x4(sums[2], sums[3], 0xDD);
  _mm512_store_si512(out, _mm512_shuffle_i32x4(a, c, 0x88));
  _mm512_store_si512(out + 16, _mm512_shuffle_i32x4(b, d, 0x88));
  _mm512_store_si512(out + 32, _mm512_shuffle_i32x4(a, c, 0xDD));
  _mm512_store_si512(out + 48, _mm512_shuffle_i32x4(b, d, 0xDD));
}

/// Written as an instruction, because gcc 12 copies the sums of the intrinsic to other registers
/// and back.
HWY_INLINE void add_products(__m512i& sums, __m512i units, const std::int8_t* weights) {
  asm("vpdpbusd %2, %1, %0"
      : "+v"(sums)
      : "v"(units), "m"(*reinterpret_cast<const __m512i*>(weights)));
}

/// Computes the sums of two neighbouring output pixels and 64 channels.
HWY_NOINLINE void sum_two(const Depthwise& of, std::size_t quads, const std::uint8_t* input,
                          const std::int8_t* HWY_RESTRICT weights, std::int32_t* HWY_RESTRICT out) {
  __m512i first[4] = {}, second[4] = {};
  for (std::size_t row = 0; row < of.kernel_rows; ++row) {
    const std::uint8_t* at = input + static_cast<std::ptrdiff_t>(row) * of.row_step;
    for (std::size_t quad = 0; quad < quads; ++quad, at += 4 * of.column_step, weights += 512) {
      const Quads pixels(at, of.column_step);
      for (std::size_t i = 0; i < 4; ++i) {
        add_products(first[i], pixels.lanes[i], weights + 64 * i);
        add_products(second[i], pixels.lanes[i], weights + 256 + 64 * i);
      }
    }
  }
  store_in_order(first, out);
  store_in_order(second, out + 64);
}

inline void convolve_quads(const Depthwise& of, const Buffers& buffers, std::size_t begin,
                           std::size_t end) {
  const std::size_t padded = (of.channels + 15) / 16 * 16;
  const std::size_t blocks = (padded + 63) / 64;
  const std::size_t block_bytes = of.quads.size() / blocks;
  const std::size_t quads = block_bytes / of.kernel_rows / 512;
  const std::size_t out_size = size_of(of.epilogue.output);
  const std::size_t addend_size = size_of(of.epilogue.addend);
  constexpr std::size_t kPixels = 24;  // pixels whose sums are finished together. Chosen by hand.
  alignas(64) std::int32_t sums[kPixels * 64];
  const std::uint8_t* more[kPixels];
  std::uint8_t* to[kPixels];
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t channel = block * 64;
    const std::size_t width = HWY_MIN(padded - channel, std::size_t{64});
    const std::int8_t* weights = of.quads.data() + block * block_bytes;
    for (std::size_t line = begin; line < end; ++line) {
      const std::size_t batch = line / of.rows, row = line % of.rows;
      const std::uint8_t* from = buffers.input + of.input.at(batch, row, 0) + channel;
      to[0] = buffers.output + of.output.at(batch, row, 0) + channel * out_size;
      more[0] = buffers.addend + of.addend.at(batch, row, 0) + channel * addend_size;
      for (std::size_t column = 0; column < of.columns; column += kPixels) {
        const std::size_t count = HWY_MIN(of.columns - column, kPixels);
        for (std::size_t i = 0; i < count; i += 2, from += 2 * of.input.pixel) {
          sum_two(of, quads, from, weights, sums + 64 * i);
        }
        for (std::size_t i = 1; i < kPixels; ++i) {
          to[i] = to[i - 1] + of.output.pixel;
          more[i] = more[i - 1] + of.addend.pixel;
        }
        finish(of.epilogue, sums, 64, width, channel,
               {count, more, to, buffers.scale, buffers.bias});
        to[0] = to[kPixels - 1] + of.output.pixel;
        more[0] = more[kPixels - 1] + of.addend.pixel;
      }
    }
  }
}

#else

/// Computes the sums of `kPixels` neighbouring output pixels and 16 channels, in float32.
template <Number kNumber, std::size_t kPixels>
HWY_INLINE void sum_any(const Depthwise& of, const std::uint8_t* input,
                        const float* HWY_RESTRICT weights, std::size_t channels,
                        float* HWY_RESTRICT out) {
  const Lane d;
  for (std::size_t lane = 0; lane < 16; lane += hn::Lanes(d)) {
    hn::Vec<Lane> sums[kPixels];
    for (auto& sum : sums) sum = hn::Zero(d);
    const float* weight = weights + lane;
    for (std::size_t row = 0; row < of.kernel_rows; ++row) {
      const std::uint8_t* at =
          input + static_cast<std::ptrdiff_t>(row) * of.row_step + lane * size_of(kNumber);
      for (std::size_t tap = 0; tap < of.kernel_columns; ++tap, at += of.column_step) {
        const auto factor = hn::Load(d, weight);
        weight += channels;
        for (std::size_t pixel = 0; pixel < kPixels; ++pixel) {
          const auto value =
              read<kNumber>(at + static_cast<std::ptrdiff_t>(pixel) * of.input.pixel);
          sums[pixel] = hn::MulAdd(value, factor, sums[pixel]);
        }
      }
    }
    for (std::size_t pixel = 0; pixel < kPixels; ++pixel) {
      hn::Store(sums[pixel], d, out + pixel * 16 + lane);
    }
  }
}

/// Does the same for kernels of `kTaps` columns without gaps; pixels that neighbours share are read
/// once.
template <Number kNumber, std::size_t kPixels, std::size_t kTaps, std::size_t kStride>
HWY_INLINE void sum_neighbours(const Depthwise& of, const std::uint8_t* input,
                               const float* HWY_RESTRICT weights, std::size_t channels,
                               float* HWY_RESTRICT out) {
  constexpr std::size_t kInputs = (kPixels - 1) * kStride + kTaps;
  const Lane d;
  for (std::size_t lane = 0; lane < 16; lane += hn::Lanes(d)) {
    hn::Vec<Lane> sums[kPixels];
#pragma GCC unroll 16
    for (std::size_t pixel = 0; pixel < kPixels; ++pixel) sums[pixel] = hn::Zero(d);
    const float* weight = weights + lane;
    const std::uint8_t* at = input + lane * size_of(kNumber);
    for (std::size_t row = 0; row < of.kernel_rows; ++row, at += of.row_step) {
      hn::Vec<Lane> values[kInputs];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kInputs; ++i) {
        values[i] = read<kNumber>(at + static_cast<std::ptrdiff_t>(i) * of.column_step);
      }
#pragma GCC unroll 16
      for (std::size_t tap = 0; tap < kTaps; ++tap, weight += channels) {
        const auto factor = hn::Load(d, weight);
#pragma GCC unroll 16
        for (std::size_t pixel = 0; pixel < kPixels; ++pixel) {
          sums[pixel] = hn::MulAdd(values[pixel * kStride + tap], factor, sums[pixel]);
        }
      }
    }
#pragma GCC unroll 16
    for (std::size_t pixel = 0; pixel < kPixels; ++pixel) {
      hn::Store(sums[pixel], d, out + pixel * 16 + lane);
    }
  }
}

constexpr std::size_t kAtOnce = 6;           // pixels whose sums stay in registers
constexpr std::size_t kChunk = 8 * kAtOnce;  // pixels whose sums are finished together

/// Calls `sum(input, weights, out)` for 16 channels of kAtOnce pixels at a time.
template <Number kNumber, class Sum>
HWY_INLINE void for_chunks(const Depthwise& of, const Buffers& buffers, std::size_t begin,
                           std::size_t end, const Sum& sum) {
  const std::size_t padded = (of.channels + 15) / 16 * 16;
  const std::size_t out_size = size_of(of.epilogue.output);
  const std::size_t addend_size = size_of(of.epilogue.addend);
  alignas(64) float sums[kChunk * 16];
  const std::uint8_t* more[kChunk];
  std::uint8_t* to[kChunk];
  for (std::size_t channel = 0; channel < padded; channel += 16) {
    const float* weights = of.weights.data() + channel;
    for (std::size_t line = begin; line < end; ++line) {
      const std::size_t batch = line / of.rows, row = line % of.rows;
      for (std::size_t column = 0; column < of.columns; column += kChunk) {
        const std::uint8_t* from =
            buffers.input + of.input.at(batch, row, column) + channel * size_of(kNumber);
        std::uint8_t* output =
            buffers.output + of.output.at(batch, row, column) + channel * out_size;
        const std::uint8_t* addend =
            buffers.addend + of.addend.at(batch, row, column) + channel * addend_size;
        const std::size_t count = HWY_MIN(of.columns - column, kChunk);
        for (std::size_t i = 0; i < count; i += kAtOnce) {
          sum(from, weights, padded, sums + 16 * i);
          from += static_cast<std::ptrdiff_t>(kAtOnce) * of.input.pixel;
        }
        for (std::size_t i = 0; i < count; ++i) {
          to[i] = output + static_cast<std::ptrdiff_t>(i) * of.output.pixel;
          more[i] = addend + static_cast<std::ptrdiff_t>(i) * of.addend.pixel;
        }
        finish(of.epilogue, sums, 16, 16, channel, {count, more, to, buffers.scale, buffers.bias});
      }
    }
  }
}

template <Number kNumber>
void convolve_lines(const Depthwise& of, const Buffers& buffers, std::size_t begin,
                    std::size_t end) {
  const auto run = [&](auto taps, auto stride) HWY_ATTR {
    for_chunks<kNumber>(
        of, buffers, begin, end,
        [&](const std::uint8_t* from, const float* weights, std::size_t padded, float* out)
            HWY_ATTR {
              if constexpr (taps() == 0) {
                sum_any<kNumber, kAtOnce>(of, from, weights, padded, out);
              } else {
                sum_neighbours<kNumber, kAtOnce, taps(), stride()>(of, from, weights, padded, out);
              }
            });
  };
  using One = std::integral_constant<std::size_t, 1>;
  using Two = std::integral_constant<std::size_t, 2>;
  const auto run_stride = [&](auto taps) HWY_ATTR {
    if (of.input.pixel == of.column_step) return run(taps, One());
    if (of.input.pixel == 2 * of.column_step) return run(taps, Two());
    run(std::integral_constant<std::size_t, 0>(), One());
  };
  if (of.kernel_columns == 3) return run_stride(std::integral_constant<std::size_t, 3>());
  if (of.kernel_columns == 5) return run_stride(std::integral_constant<std::size_t, 5>());
  run(std::integral_constant<std::size_t, 0>(), One());
}

inline void convolve_floats(const Depthwise& of, const Buffers& buffers, std::size_t begin,
                            std::size_t end) {
  with_number(of.number, [&](auto number) { convolve_lines<number()>(of, buffers, begin, end); });
}

#endif

}  // namespace
HWY_AFTER_NAMESPACE();
