// The depthwise convolution of bfloat16 by products of pairs, for AVX-512 with BF16. It is included
// once.
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni,avx512bf16")
namespace slipstream::kernels::N_AVX3_BF16 {
using namespace HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the epilogue's

constexpr std::size_t kPairPixels = 6;               // pixels whose sums stay in registers
constexpr std::size_t kPairChunk = 8 * kPairPixels;  // pixels that are finished together
constexpr std::size_t kPairChannels = 32;            // channels of one vector of bfloat16

/// Written as an instruction, because gcc 12 copies the sums of the intrinsic to other registers
/// and back.
HWY_INLINE void add_pairs(__m512& sums, __m512i values, __m512i weights) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(values), "v"(weights));
}

/// Adds the products of two rows of the kernel, or of its last row, to neighbouring output pixels.
/// The numbers of a channel in both rows form one lane, which all output pixels that read it share.
template <std::size_t kTaps, std::size_t kStride, bool kBoth>
HWY_INLINE void add_rows(const Depthwise& of, const std::uint8_t* input,
                         const std::uint8_t* HWY_RESTRICT weights, __m512 (&sums)[kPairPixels][2]) {
  constexpr std::size_t kInputs = (kPairPixels - 1) * kStride + kTaps;
  __m512i weight[kTaps][2];
#pragma GCC unroll 16
  for (std::size_t tap = 0; tap < kTaps; ++tap) {
    weight[tap][0] = _mm512_load_si512(weights + tap * 128);
    weight[tap][1] = _mm512_load_si512(weights + tap * 128 + 64);
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kInputs; ++i) {
    const std::uint8_t* at = input + static_cast<std::ptrdiff_t>(i) * of.column_step;
    const __m512i upper = _mm512_loadu_si512(at);
    const __m512i lower = kBoth ? _mm512_loadu_si512(at + of.row_step) : _mm512_setzero_si512();
    const __m512i low = _mm512_unpacklo_epi16(upper, lower);
    const __m512i high = _mm512_unpackhi_epi16(upper, lower);
#pragma GCC unroll 16
    for (std::size_t pixel = 0; pixel < kPairPixels; ++pixel) {
      if (i < pixel * kStride || i - pixel * kStride >= kTaps) continue;
      add_pairs(sums[pixel][0], low, weight[i - pixel * kStride][0]);
      add_pairs(sums[pixel][1], high, weight[i - pixel * kStride][1]);
    }
  }
}

/// Computes the sums of kPairPixels neighbouring output pixels and 32 channels.
template <std::size_t kTaps, std::size_t kStride>
HWY_INLINE void sum_pairs(const Depthwise& of, const std::uint8_t* input,
                          const std::uint8_t* HWY_RESTRICT weights, float* HWY_RESTRICT out) {
  __m512 sums[kPairPixels][2];
#pragma GCC unroll 16
  for (auto& pixel : sums) pixel[0] = pixel[1] = _mm512_setzero_ps();
  std::size_t row = 0;
  for (; row + 1 < of.kernel_rows; row += 2, input += 2 * of.row_step, weights += kTaps * 128) {
    add_rows<kTaps, kStride, true>(of, input, weights, sums);
  }
  if (row < of.kernel_rows) add_rows<kTaps, kStride, false>(of, input, weights, sums);
  // Unpacking put the lower half of each 128 bits into the first vector, and the upper half into
  // the second.
  const __m512i front = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
  const __m512i back = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
#pragma GCC unroll 16
  for (std::size_t pixel = 0; pixel < kPairPixels; ++pixel) {
    const __m512d low = _mm512_castps_pd(sums[pixel][0]), high = _mm512_castps_pd(sums[pixel][1]);
    auto* to = reinterpret_cast<double*>(out + pixel * kPairChannels);
    _mm512_store_pd(to, _mm512_permutex2var_pd(low, front, high));
    _mm512_store_pd(to + 8, _mm512_permutex2var_pd(low, back, high));
  }
}

template <std::size_t kTaps, std::size_t kStride>
void convolve_pairs(const Depthwise& of, const Buffers& buffers, std::size_t begin,
                    std::size_t end) {
  const std::size_t padded = (of.channels + 15) / 16 * 16;
  const std::size_t block_bytes = (of.kernel_rows + 1) / 2 * kTaps * 128;
  const std::size_t out_size = size_of(of.epilogue.output);
  const std::size_t addend_size = size_of(of.epilogue.addend);
  alignas(64) float sums[kPairChunk * kPairChannels];
  const std::uint8_t* more[kPairChunk];
  std::uint8_t* to[kPairChunk];
  const std::uint8_t* weights = of.pairs.data();
  for (std::size_t channel = 0; channel < padded; channel += 32, weights += block_bytes) {
    const std::size_t width = HWY_MIN(padded - channel, kPairChannels);
    for (std::size_t line = begin; line < end; ++line) {
      const std::size_t batch = line / of.rows, row = line % of.rows;
      for (std::size_t column = 0; column < of.columns; column += kPairChunk) {
        const std::uint8_t* from = buffers.input + of.input.at(batch, row, column) + channel * 2;
        to[0] = buffers.output + of.output.at(batch, row, column) + channel * out_size;
        more[0] = buffers.addend + of.addend.at(batch, row, column) + channel * addend_size;
        const std::size_t count = HWY_MIN(of.columns - column, kPairChunk);
        for (std::size_t i = 0; i < count; i += kPairPixels) {
          sum_pairs<kTaps, kStride>(of, from, weights, sums + i * kPairChannels);
          from += static_cast<std::ptrdiff_t>(kPairPixels) * of.input.pixel;
        }
        for (std::size_t i = 1; i < count; ++i) {
          to[i] = to[i - 1] + of.output.pixel;
          more[i] = more[i - 1] + of.addend.pixel;
        }
        finish(of.epilogue, sums, kPairChannels, width, channel,
               {count, more, to, buffers.scale, buffers.bias});
      }
    }
  }
}

inline void convolve_pairs(const Depthwise& of, const Buffers& buffers, std::size_t begin,
                           std::size_t end) {
  const bool apart = of.input.pixel != of.column_step;
  if (of.kernel_columns == 3) {
    return apart ? convolve_pairs<3, 2>(of, buffers, begin, end)
                 : convolve_pairs<3, 1>(of, buffers, begin, end);
  }
  return apart ? convolve_pairs<5, 2>(of, buffers, begin, end)
               : convolve_pairs<5, 1>(of, buffers, begin, end);
}

}  // namespace slipstream::kernels::N_AVX3_BF16
HWY_AFTER_NAMESPACE();
