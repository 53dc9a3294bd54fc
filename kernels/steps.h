#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "convolution.h"
#include "depthwise.h"
#include "program.h"

// What a program is made of. Each function decides once where everything lies and packs weights;
// the step that it returns only runs. Tensors of steps have channels padded to a multiple of 16 in
// memory, whatever their number of channels, unless a step says otherwise.
namespace slipstream::kernels {

/// Where the taps of a window lie: output (y, x) begins at input (y * stride - before).
struct Window {
  std::size_t rows = 1, columns = 1;
  std::size_t row_stride = 1, column_stride = 1;
  std::size_t row_dilation = 1, column_dilation = 1;
  std::size_t above = 0, left = 0;  ///< taps outside of the input; its border must be filled
};

/// What layers read and write.
struct Operands {
  Tensor input, output;
  std::optional<Tensor> addend;   ///< what the epilogue adds
  std::optional<Tensor> factors;  ///< one float32 pixel, with which it multiplies: see Buffers
  /// One float32 pixel, with which a convolution of one tap multiplies what it reads, which is no
  /// bytes: it multiplies the weights, so they need room.
  std::optional<Tensor> gate, room;
  /// Two float32 for each pixel of an input of bytes, as quantise() writes them, of a convolution
  /// of one tap: see Buffers.
  std::optional<Tensor> ranges;
};

/// Every output channel from all input channels. `weights` are of the input's kind, and int8 where
/// that is uint8: [output channel][kernel row][kernel column][input channel].
Step convolution(const Operands& operands, const Window& window, const void* weights,
                 Epilogue epilogue);

/// Every channel by itself. `weights` are [kernel row][kernel column][channel]; where the input is
/// uint8 and they are whole numbers of int8 (`whole`), bytes are multiplied by bytes.
Step depthwise(const Operands& operands, const Window& window, const float* weights, bool whole,
               Epilogue epilogue);

/// Fills what lies around a tensor, so that windows may reach beyond it.
Step border(const Tensor& inner, std::size_t above, std::size_t left, std::size_t below,
            std::size_t right, std::uint8_t byte);

/// The greatest number, or the mean, of each window; taps outside of the input do not count, but
/// for a mean with `count_outside`. Input and output have one format.
enum class Pooling : std::uint8_t { kMax, kMean };
Step pooling(const Tensor& input, const Tensor& output, const Window& window, Pooling kind,
             bool count_outside);

/// The mean over all pixels, as float32: scale * (mean - zero).
Step global_mean(const Tensor& input, const Tensor& output, float scale, float zero);

/// A factor per channel, which is a tensor of one float32 pixel for each picture of the batch:
/// written = clip((x + offset) * factor * scale + shift, low, high).
struct Gate {
  float offset = 0.0F, scale = 1.0F, shift = 0.0F, low = 0.0F, high = 0.0F;
};
Step gate(const Tensor& input, const Tensor& factors, const Tensor& output, const Gate& how);

/// A strided copy, with a change of format on the way: written = clip(read * scale + shift). Sizes
/// and strides (bytes; 0 repeats) go from the outermost dimension to the innermost. May touch the
/// caller's buffers, as normalise may, and no other step.
struct Copy {
  std::vector<std::size_t> sizes;
  std::vector<std::ptrdiff_t> from, to;
  float scale = 1.0F, shift = 0.0F;
};
Step copy(const Tensor& input, const Tensor& output, const Copy& how);

/// Pictures of bytes as decoders give them: written = read * scale + shift for each channel, which
/// each has a number of in `scale` and `shift`. Neither tensor has gaps between pixels.
Step normalise(const Tensor& input, const Tensor& output, const std::vector<float>& scale,
               const std::vector<float>& shift);

/// (x - mean) / sqrt(variance + epsilon) * scale + bias over the channels of each pixel, written as
/// the epilogue says (its scale and bias are those of the normalisation).
Step layer_norm(const Tensor& input, const Tensor& output, float epsilon, Epilogue epilogue);

/// Each pixel of float32 as bytes between the least and the greatest of its channels; `ranges` gets
/// what they stand for, pixel by pixel: real = byte ranges[0] + ranges[1].
Step quantise(const Tensor& input, const Tensor& output, const Tensor& ranges);

/// Softmax over the channels of each pixel, float32.
Step softmax(const Tensor& input, const Tensor& output);

/// softmax(q k^T scale + mask) v for every head. The channels of q, k, v and the output are
/// [head][size of a head], the mask's are [key], one pixel per query or one for all of a batch. q,
/// k and v are float32, or all bfloat16; the mask is float32.
struct Attention {
  Tensor q, k, v;
  std::optional<Tensor> mask;
  Tensor output;
  std::size_t heads = 1;
  float scale = 1.0F;
};
/// The epilogue is for the channels of one head.
Step attention(const Attention& of, Epilogue epilogue);

}  // namespace slipstream::kernels
