#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "steps.h"
#include "weights.h"

namespace slipstream::kernels {
namespace {

std::size_t padded(std::size_t channels) { return (channels + 15) / 16 * 16; }

/// Returns the distances from one output pixel's first tap to the next one's.
Pitch strided(const Tensor& input, const Window& window) {
  return {input.pitch.batch, input.pitch.row * static_cast<std::ptrdiff_t>(window.row_stride),
          input.pitch.pixel * static_cast<std::ptrdiff_t>(window.column_stride)};
}

std::ptrdiff_t tap(const Tensor& input, const Window& window, std::size_t row, std::size_t column) {
  const auto down = static_cast<std::ptrdiff_t>(row * window.row_dilation) -
                    static_cast<std::ptrdiff_t>(window.above);
  const auto right = static_cast<std::ptrdiff_t>(column * window.column_dilation) -
                     static_cast<std::ptrdiff_t>(window.left);
  return down * input.pitch.row + right * input.pitch.pixel;
}

/// Returns the runs of a window. The taps of a kernel's row are one run if there are no gaps
/// between pixels.
std::vector<Run> runs_of(const Tensor& input, const Window& window, std::size_t bytes) {
  const bool merged =
      input.pitch.pixel == static_cast<std::ptrdiff_t>(bytes) && window.column_dilation == 1;
  std::vector<Run> runs;
  for (std::size_t row = 0; row < window.rows; ++row) {
    if (merged) {
      runs.push_back({tap(input, window, row, 0), (window.columns * bytes + 3) / 4});
      continue;
    }
    for (std::size_t column = 0; column < window.columns; ++column) {
      runs.push_back({tap(input, window, row, column), (bytes + 3) / 4});
    }
  }
  return runs;
}

std::size_t units_of(const std::vector<Run>& runs) {
  std::size_t units = 0;
  for (const Run& run : runs) units += run.units;
  return units;
}

/// Returns the weights of each output channel run by run, each run padded to whole units.
Aligned<std::uint8_t> by_runs(const std::uint8_t* weights, std::size_t channels, std::size_t bytes,
                              const std::vector<Run>& runs) {
  const std::size_t units = units_of(runs);
  const std::size_t run_bytes = bytes / runs.size();
  Aligned<std::uint8_t> matrix(channels * units * 4);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    std::uint8_t* to = matrix.data() + channel * units * 4;
    for (std::size_t run = 0; run < runs.size(); ++run, to += runs[run - 1].units * 4) {
      std::memcpy(to, weights + channel * bytes + run * run_bytes, run_bytes);
    }
  }
  return matrix;
}

/// True if the CPU adds products in 16 bits, and the sum of two units of a run always fits.
bool add_twos(const std::uint8_t* matrix, std::size_t channels, const std::vector<Run>& runs) {
  const auto is_even = [](const Run& run) { return run.units % 2 == 0; };
  return adds_pairs() && std::all_of(runs.begin(), runs.end(), is_even) &&
         fit_fours(reinterpret_cast<const std::int8_t*>(matrix), channels * units_of(runs) / 2);
}

/// Returns the sum of each output channel's weights.
Aligned<float> totals_of(const std::int8_t* weights, std::size_t channels, std::size_t count) {
  Aligned<float> totals(padded(channels));
  for (std::size_t channel = 0; channel < channels; ++channel, weights += count) {
    totals[channel] = static_cast<float>(std::accumulate(weights, weights + count, 0));
  }
  return totals;
}

/// Cuts `count` into at most `most` parts. Parts are multiples of `multiple`, and their sizes
/// differ by at most one multiple.
struct Cut {
  std::size_t count, multiple, parts;
  Cut(std::size_t all, std::size_t whole, std::size_t most)
      : count(all), multiple(whole), parts(std::clamp(most, std::size_t{1}, units())) {}
  [[nodiscard]] std::size_t units() const { return (count + multiple - 1) / multiple; }
  [[nodiscard]] std::size_t begin(std::size_t part) const {
    return std::min(units() * part / parts * multiple, count);
  }
};

/// Returns the number of parts of a step: several for each thread, because a thread may be delayed.
/// Four is chosen by hand, not measured.
std::size_t most_parts(const Workers& workers) {
  return workers.threads() == 1 ? 1 : workers.threads() * 4;
}

/// Merges rows without gaps between them into one row.
void flatten(Convolution& of) {
  const auto gapless = [&](const Pitch& pitch) {
    return pitch.row == pitch.pixel * static_cast<std::ptrdiff_t>(of.columns);
  };
  if (!gapless(of.input) || !gapless(of.output)) return;
  if (of.epilogue.adds != Epilogue::Adds::kNothing && !gapless(of.addend)) return;
  of.columns *= of.rows;
  of.rows = 1;
}

/// The epilogue's scale and bias, multiplied by the factors of a run if it has any.
class Scaled {
 public:
  Scaled(const Epilogue& epilogue, const float* factors) {
    if (factors == nullptr) return;
    scale_.resize(epilogue.scale.size());
    bias_.resize(epilogue.bias.size());
    for (std::size_t i = 0; i < scale_.size(); ++i) {
      scale_[i] = epilogue.scale[i] * factors[i];
      bias_[i] = epilogue.bias[i] * factors[i] + (epilogue.offset.empty() ? 0 : epilogue.offset[i]);
    }
  }
  [[nodiscard]] const float* scale(const Epilogue& epilogue) const {
    return scale_.empty() ? epilogue.scale.data() : scale_.data();
  }
  [[nodiscard]] const float* bias(const Epilogue& epilogue) const {
    return bias_.empty() ? epilogue.bias.data() : bias_.data();
  }

 private:
  Aligned<float> scale_, bias_;
};

std::uint8_t* place(const Memory& memory, const std::optional<Tensor>& tensor) {
  return tensor ? memory.at(*tensor) : nullptr;
}

/// Calls `work` with the addresses of one run.
template <class Work>
void with_buffers(const Memory& memory, const Operands& operands, const Epilogue& epilogue,
                  const Work& work) {
  const auto at = [&](const std::optional<Tensor>& tensor) { return place(memory, tensor); };
  const Scaled scaled(epilogue, reinterpret_cast<const float*>(at(operands.factors)));
  work(Buffers{memory.at(operands.input), at(operands.addend), memory.at(operands.output),
               scaled.scale(epilogue), scaled.bias(epilogue), at(operands.room),
               reinterpret_cast<const float*>(at(operands.ranges))});
}

/// Cuts the pixels and the panels of output channels into parts. Every part reads all weights of
/// its panels, so pixels are cut only if each part gets many of them, or if the panels cannot be
/// divided evenly.
std::pair<Cut, Cut> cut(const Convolution& of, const Workers& workers) {
  constexpr std::size_t kRows = 24;  // a multiple of the height of every tile
  constexpr std::size_t kMany = 48;  // pixels of a part. Chosen by hand, not measured.
  const std::size_t most = most_parts(workers), threads = workers.threads();
  const std::size_t panels = Panels(of.channels, groups_at_once()).count;
  const Cut pixels(of.pixels(), kRows, std::min(most, of.pixels() / kMany));
  if (pixels.parts >= threads * 2) return {pixels, {panels, 1, 1}};
  const Cut columns(panels, 1, most);
  const bool is_even = columns.parts == most || columns.parts % threads == 0;
  return {{of.pixels(), kRows, is_even ? 1 : threads}, columns};
}

void run_convolution(const Convolution& of, const Buffers& buffers, Workers& workers) {
  const auto cuts = cut(of, workers);
  const Cut &pixels = cuts.first, &columns = cuts.second;
  workers.share(pixels.parts * columns.parts, [&](std::size_t part) {
    const std::size_t row = part % pixels.parts, column = part / pixels.parts;
    convolve(of, buffers, pixels.begin(row), pixels.begin(row + 1), columns.begin(column),
             columns.begin(column + 1));
  });
}

}  // namespace

Step convolution(const Operands& operands, const Window& window, const void* weights,
                 Epilogue epilogue) {
  const Tensor &input = operands.input, &output = operands.output;
  const std::size_t size = size_of(input.number);
  const std::size_t bytes = input.channels * size;
  auto of = std::make_shared<Convolution>();
  of->operand = size == 1 ? Operand::kInt8 : size == 2 ? Operand::kBFloat16 : Operand::kFloat32;
  of->batch = output.batch;
  of->rows = output.rows;
  of->columns = output.columns;
  of->channels = output.channels;
  of->input = strided(input, window);
  of->output = output.pitch;
  if (operands.addend) of->addend = operands.addend->pitch;
  of->epilogue = std::move(epilogue);
  if (operands.ranges) {
    of->totals = totals_of(static_cast<const std::int8_t*>(weights), output.channels, bytes);
  }
  of->runs = runs_of(input, window, bytes);
  flatten(*of);
  const std::size_t units = units_of(of->runs), all = bytes * window.rows * window.columns;
  Aligned<std::uint8_t> padded_runs;
  const auto* matrix = static_cast<const std::uint8_t*>(weights);
  if (units * 4 != all) {
    padded_runs = by_runs(matrix, output.channels, all, of->runs);
    matrix = padded_runs.data();
  }
  of->adds_twos = of->operand == Operand::kInt8 && add_twos(matrix, output.channels, of->runs);
  of->weights = pack({matrix, static_cast<std::ptrdiff_t>(units * 4), 4, output.channels, units});
  return {"convolution", [of, operands, units](const Memory& memory, Workers& workers) {
            if (operands.gate) {
              const auto* factors = reinterpret_cast<const float*>(memory.at(*operands.gate));
              multiply_rows(of->weights.data(), of->channels, units,
                            of->operand == Operand::kBFloat16, factors,
                            place(memory, operands.room));
            }
            with_buffers(memory, operands, of->epilogue,
                         [&](const Buffers& buffers) { run_convolution(*of, buffers, workers); });
          }};
}

Step depthwise(const Operands& operands, const Window& window, const float* weights, bool whole,
               Epilogue epilogue) {
  const Tensor &input = operands.input, &output = operands.output;
  auto of = std::make_shared<Depthwise>();
  of->number = input.number;
  of->batch = output.batch;
  of->rows = output.rows;
  of->columns = output.columns;
  of->channels = output.channels;
  of->kernel_rows = window.rows;
  of->kernel_columns = window.columns;
  of->row_step = input.pitch.row * static_cast<std::ptrdiff_t>(window.row_dilation);
  of->column_step = input.pitch.pixel * static_cast<std::ptrdiff_t>(window.column_dilation);
  of->input = strided(input, window);
  of->output = output.pitch;
  if (operands.addend) of->addend = operands.addend->pitch;
  const std::size_t taps = window.rows * window.columns;
  of->weights.resize(taps * padded(output.channels));
  for (std::size_t at = 0; at < taps; ++at) {
    std::copy_n(weights + at * output.channels, output.channels,
                of->weights.data() + at * padded(output.channels));
  }
  const bool quads = whole && has_quads() && input.number == Number::kUInt8 && taps > 1 &&
                     window.column_dilation == 1;
  if (quads) of->quads = pack_quads(*of, window.column_stride);
  if (suits_pairs(*of)) of->pairs = pack_pairs(*of);
  of->epilogue = std::move(epilogue);
  const std::ptrdiff_t first = tap(input, window, 0, 0);
  return {"depthwise", [of, operands, first](const Memory& memory, Workers& workers) {
            with_buffers(memory, operands, of->epilogue, [&](Buffers buffers) {
              buffers.input += first;
              const Cut lines(of->lines(), 1, most_parts(workers));
              workers.share(lines.parts, [&](std::size_t part) {
                convolve(*of, buffers, lines.begin(part), lines.begin(part + 1));
              });
            });
          }};
}

Step border(const Tensor& inner, std::size_t above, std::size_t left, std::size_t below,
            std::size_t right, std::uint8_t byte) {
  return {"border", [=](const Memory& memory, Workers& /*workers*/) {
            const auto pixel = static_cast<std::size_t>(inner.pitch.pixel);
            const std::size_t wide = (left + inner.columns + right) * pixel;
            for (std::size_t batch = 0; batch < inner.batch; ++batch) {
              std::uint8_t* row = memory.at(inner) + inner.pitch.at(batch, 0, 0) -
                                  static_cast<std::ptrdiff_t>(above) * inner.pitch.row -
                                  static_cast<std::ptrdiff_t>(left * pixel);
              for (std::size_t y = 0; y < above + inner.rows + below; ++y, row += inner.pitch.row) {
                if (y < above || y >= above + inner.rows) {
                  std::memset(row, byte, wide);
                } else {
                  std::memset(row, byte, left * pixel);
                  std::memset(row + (left + inner.columns) * pixel, byte, right * pixel);
                }
              }
            }
          }};
}

}  // namespace slipstream::kernels
