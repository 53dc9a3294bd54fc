#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "convolution.h"
#include "depthwise.h"
#include "program.h"

// The steps of programs. Each function here decides the addresses and packs the weights once; the
// step that it returns only runs. In memory, the channels of a step's tensors are padded to a
// multiple of 16, unless a step says otherwise.
namespace slipstream::kernels {

/// The taps of a window: output (y, x) begins at input (y * stride - above, x * stride - left).
struct Window {
  std::size_t rows = 1, columns = 1;
  std::size_t row_stride = 1, column_stride = 1;
  std::size_t row_dilation = 1, column_dilation = 1;
  std::size_t above = 0, left = 0;  ///< taps outside the input, whose border must be filled
};

/// The tensors that a layer reads and writes.
struct Operands {
  Tensor input, output;
  std::optional<Tensor> addend;   ///< tensor that the epilogue adds
  std::optional<Tensor> factors;  ///< a float32 pixel, factors of output channels: see Buffers
  /// `gate` is one float32 pixel of factors of the input channels, for a convolution of one tap
  /// whose input is not bytes. The factors multiply the weights, and `room` is memory for the
  /// products.
  std::optional<Tensor> gate, room;
  /// Two float32 for each pixel of an input of bytes, as quantise() writes them, for a convolution
  /// of one tap: see Buffers.
  std::optional<Tensor> ranges;
};

/// Computes every output channel from all input channels. `weights` are [output channel][kernel
/// row][kernel column][input channel], in the input's format, or int8 if that is uint8.
Step convolution(const Operands& operands, const Window& window, const void* weights,
                 Epilogue epilogue);

/// Computes every channel by itself. `weights` are [kernel row][kernel column][channel]. If the
/// input is uint8 and the weights are int8 integers (`whole`), bytes are multiplied by bytes.
Step depthwise(const Operands& operands, const Window& window, const float* weights, bool whole,
               Epilogue epilogue);

/// Fills the border of a tensor, so that windows may reach beyond it.
Step border(const Tensor& inner, std::size_t above, std::size_t left, std::size_t below,
            std::size_t right, std::uint8_t byte);

/// Computes the greatest number, or the mean, of each window. Taps outside the input do not count,
/// except for a mean with `count_outside`. Input and output have one format.
enum class Pooling : std::uint8_t { kMax, kMean };
Step pooling(const Tensor& input, const Tensor& output, const Window& window, Pooling kind,
             bool count_outside);

/// Computes the mean over all pixels, as float32: scale * (mean - zero).
Step global_mean(const Tensor& input, const Tensor& output, float scale, float zero);

/// Multiplies by a factor per channel; the factors are a tensor of one float32 pixel for each image
/// of the batch: written = clip((x + offset) * factor * scale + shift, low, high).
struct Gate {
  float offset = 0.0F, scale = 1.0F, shift = 0.0F, low = 0.0F, high = 0.0F;
};
Step gate(const Tensor& input, const Tensor& factors, const Tensor& output, const Gate& how);

/// Copies with strides, and changes the format: written = clip(read * scale + shift). Sizes and
/// strides (in bytes; 0 repeats) go from the outermost dimension to the innermost. Only copy and
/// normalise may access the caller's buffers.
struct Copy {
  std::vector<std::size_t> sizes;
  std::vector<std::ptrdiff_t> from, to;
  float scale = 1.0F, shift = 0.0F;
};
Step copy(const Tensor& input, const Tensor& output, const Copy& how);

/// Reads images of bytes as decoders return them: written = read * scale + shift, with a number per
/// channel in `scale` and in `shift`. Neither tensor has gaps between pixels.
Step normalise(const Tensor& input, const Tensor& output, const std::vector<float>& scale,
               const std::vector<float>& shift);

/// Computes (x - mean) / sqrt(variance + epsilon) * scale + bias over the channels of each pixel;
/// scale and bias are in the epilogue, which also finishes the result.
Step layer_norm(const Tensor& input, const Tensor& output, float epsilon, Epilogue epilogue);

/// Converts each pixel of float32 to bytes between the least and the greatest of its channels.
/// `ranges` gets two numbers for each pixel: real = byte ranges[0] + ranges[1].
Step quantise(const Tensor& input, const Tensor& output, const Tensor& ranges);

/// Computes the softmax over the channels of each pixel, in float32.
Step softmax(const Tensor& input, const Tensor& output);

/// Computes softmax(q k^T scale + mask) v for every head. The channels of q, k, v and the output
/// are [head][channel of a head]. The mask's channels are [key]; it has one pixel per query, or one
/// for the whole batch. q, k and v are all float32 or all bfloat16; the mask is float32.
struct Attention {
  Tensor q, k, v;
  std::optional<Tensor> mask;
  Tensor output;
  std::size_t heads = 1;
  float scale = 1.0F;
};
/// The epilogue has the channels of one head.
Step attention(const Attention& of, Epilogue epilogue);

}  // namespace slipstream::kernels
