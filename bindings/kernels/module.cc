#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "levels.h"
#include "resize.h"
#include "steps.h"
#include "weights.h"

// The kernels of infer: tensors, epilogues of sums, programs. No step checks its arguments:
// slipstream.infer.native, the only caller, lays everything out.
namespace nb = nanobind;
using namespace nb::literals;

namespace slipstream::kernels {
namespace {

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
// Inputs may be read-only; programs write only to their outputs.
using Buffer = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Pixels = nb::ndarray<const std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Target = nb::ndarray<std::uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

Aligned<float> padded(const Floats& values) {
  Aligned<float> result((values.size() + 15) / 16 * 16, 0.0F);
  std::copy_n(values.data(), values.size(), result.begin());
  return result;
}

void bind_values(nb::module_& m) {
  nb::enum_<Number>(m, "Number")
      .value("FLOAT32", Number::kFloat32)
      .value("UINT8", Number::kUInt8)
      .value("BFLOAT16", Number::kBFloat16);
  nb::enum_<Activation>(m, "Activation")
      .value("NONE", Activation::kNone)
      .value("SILU", Activation::kSilu)
      .value("HARD_SWISH", Activation::kHardSwish)
      .value("SIGMOID", Activation::kSigmoid)
      .value("HARD_SIGMOID", Activation::kHardSigmoid)
      .value("GELU", Activation::kGelu)
      .value("TANH", Activation::kTanh)
      .value("LEAKY_RELU", Activation::kLeakyRelu)
      .value("INVERSE_ROOT", Activation::kInverseRoot);
  nb::enum_<Epilogue::Adds>(m, "Adds")
      .value("NOTHING", Epilogue::Adds::kNothing)
      .value("BEFORE", Epilogue::Adds::kBefore)
      .value("AFTER", Epilogue::Adds::kAfter);
  nb::enum_<Pooling>(m, "Pooling").value("MAX", Pooling::kMax).value("MEAN", Pooling::kMean);

  nb::class_<Tensor>(m, "Tensor")
      .def(
          "__init__",
          [](Tensor* self, Number number, std::size_t buffer, std::size_t offset,
             const std::array<std::size_t, 4>& sizes, const std::array<std::ptrdiff_t, 3>& pitch) {
            new (self) Tensor{number,   buffer,   offset,   sizes[0],
                              sizes[1], sizes[2], sizes[3], {pitch[0], pitch[1], pitch[2]}};
          },
          "number"_a, "buffer"_a, "offset"_a, "sizes"_a, "pitch"_a);

  nb::class_<Operands>(m, "Operands")
      .def(nb::init<Tensor, Tensor, std::optional<Tensor>, std::optional<Tensor>,
                    std::optional<Tensor>, std::optional<Tensor>, std::optional<Tensor>>(),
           "input"_a, "output"_a, "addend"_a.none() = nb::none(), "factors"_a.none() = nb::none(),
           "gate"_a.none() = nb::none(), "room"_a.none() = nb::none(),
           "ranges"_a.none() = nb::none());

  nb::class_<Window>(m, "Window")
      .def(
          "__init__",
          [](Window* self, const std::array<std::size_t, 2>& size,
             const std::array<std::size_t, 2>& stride, const std::array<std::size_t, 2>& dilation,
             const std::array<std::size_t, 2>& before) {
            new (self) Window{size[0],     size[1],     stride[0], stride[1],
                              dilation[0], dilation[1], before[0], before[1]};
          },
          "size"_a, "stride"_a, "dilation"_a, "before"_a);

  nb::class_<Epilogue>(m, "Epilogue")
      .def(
          "__init__",
          [](Epilogue* self, const Floats& scale, const Floats& bias) {
            new (self) Epilogue();
            self->scale = padded(scale);
            self->bias = padded(bias);
          },
          "scale"_a, "bias"_a)
      .def(
          "offset", [](Epilogue& self, const Floats& values) { self.offset = padded(values); },
          "values"_a, "Set the numbers added per channel after a factor of the run.")
      .def_rw("activation", &Epilogue::activation)
      .def_rw("alpha", &Epilogue::alpha)
      .def_rw("beta", &Epilogue::beta)
      .def_rw("coarse", &Epilogue::coarse)
      .def_rw("stretch", &Epilogue::stretch)
      .def_rw("shift", &Epilogue::shift)
      .def_rw("low", &Epilogue::low)
      .def_rw("high", &Epilogue::high)
      .def_rw("output", &Epilogue::output)
      .def_rw("adds", &Epilogue::adds)
      .def_rw("addend", &Epilogue::addend)
      .def_rw("addend_weight", &Epilogue::addend_weight);
}

std::vector<std::uint8_t*> pointers(const std::vector<Buffer>& arrays) {
  std::vector<std::uint8_t*> result;
  result.reserve(arrays.size());
  for (const Buffer& array : arrays) {
    result.push_back(const_cast<std::uint8_t*>(static_cast<const std::uint8_t*>(array.data())));
  }
  return result;
}

void bind_steps(nb::class_<Program>& program) {
  program
      .def(
          "convolution",
          [](Program& self, const Operands& operands, const Window& window, const Weights& weights,
             const Epilogue& epilogue) {
            self.add(convolution(operands, window, weights.data(), epilogue));
          },
          "operands"_a, "window"_a, "weights"_a, "epilogue"_a,
          nb::sig("def convolution(self, operands: Operands, window: Window, "
                  "weights: numpy.typing.NDArray[typing.Any], epilogue: Epilogue) -> None"))
      .def(
          "depthwise",
          [](Program& self, const Operands& operands, const Window& window, const Floats& weights,
             bool whole, const Epilogue& epilogue) {
            self.add(depthwise(operands, window, weights.data(), whole, epilogue));
          },
          "operands"_a, "window"_a, "weights"_a, "whole"_a, "epilogue"_a)
      .def(
          "border",
          [](Program& self, const Tensor& inner, const std::array<std::size_t, 4>& around,
             std::uint8_t byte) {
            self.add(border(inner, around[0], around[1], around[2], around[3], byte));
          },
          "inner"_a, "around"_a, "byte"_a)
      .def(
          "pooling",
          [](Program& self, const Tensor& input, const Tensor& output, const Window& window,
             Pooling kind,
             bool count_outside) { self.add(pooling(input, output, window, kind, count_outside)); },
          "input"_a, "output"_a, "window"_a, "kind"_a, "count_outside"_a)
      .def(
          "global_mean",
          [](Program& self, const Tensor& input, const Tensor& output, float scale, float zero) {
            self.add(global_mean(input, output, scale, zero));
          },
          "input"_a, "output"_a, "scale"_a, "zero"_a)
      .def(
          "gate",
          [](Program& self, const Tensor& input, const Tensor& factors, const Tensor& output,
             float offset, float scale, float shift, float low, float high) {
            self.add(gate(input, factors, output, {offset, scale, shift, low, high}));
          },
          "input"_a, "factors"_a, "output"_a, "offset"_a, "scale"_a, "shift"_a, "low"_a, "high"_a)
      .def(
          "copy",
          [](Program& self, const Tensor& input, const Tensor& output,
             const std::vector<std::size_t>& sizes, const std::vector<std::ptrdiff_t>& from,
             const std::vector<std::ptrdiff_t>& to, float scale,
             float shift) { self.add(copy(input, output, {sizes, from, to, scale, shift})); },
          "input"_a, "output"_a, "sizes"_a, "source"_a, "target"_a, "scale"_a, "shift"_a)
      .def(
          "normalise",
          [](Program& self, const Tensor& input, const Tensor& output,
             const std::vector<float>& scale,
             const std::vector<float>& shift) { self.add(normalise(input, output, scale, shift)); },
          "input"_a, "output"_a, "scale"_a, "shift"_a);
}

void bind_text_steps(nb::class_<Program>& program) {
  program
      .def(
          "layer_norm",
          [](Program& self, const Tensor& input, const Tensor& output, float epsilon,
             const Epilogue& epilogue) { self.add(layer_norm(input, output, epsilon, epilogue)); },
          "input"_a, "output"_a, "epsilon"_a, "epilogue"_a)
      .def(
          "quantise",
          [](Program& self, const Tensor& input, const Tensor& output, const Tensor& ranges) {
            self.add(quantise(input, output, ranges));
          },
          "input"_a, "output"_a, "ranges"_a)
      .def(
          "softmax",
          [](Program& self, const Tensor& input, const Tensor& output) {
            self.add(softmax(input, output));
          },
          "input"_a, "output"_a)
      .def(
          "attention",
          [](Program& self, const Tensor& q, const Tensor& k, const Tensor& v,
             const std::optional<Tensor>& mask, const Tensor& output, std::size_t heads,
             float scale, const Epilogue& epilogue) {
            self.add(attention({q, k, v, mask, output, heads, scale}, epilogue));
          },
          "q"_a, "k"_a, "v"_a, "mask"_a.none(), "output"_a, "heads"_a, "scale"_a, "epilogue"_a);
}

void bind_program(nb::module_& m) {
  m.def("adds_pairs", &adds_pairs,
        "Tell whether this CPU adds products of bytes in 16 bits. Then sums of two neighbouring\n"
        "weights of one sign, and of four of two units, must be at most 128.");
  m.def("level", &level, "Return 0 for float32 only, 1 for bytes, 2 for bfloat16 as well.");
  nb::class_<Workers>(m, "Workers")
      .def(nb::init<std::size_t>(), "threads"_a)
      .def_prop_ro("threads", &Workers::threads);
  nb::class_<Program> program(m, "Program");
  program.def(nb::init<std::size_t>(), "bytes"_a)
      .def_prop_ro("names",
                   [](const Program& self) {
                     std::vector<std::string> names;
                     for (const Step& step : self.steps()) names.push_back(step.name);
                     return names;
                   })
      .def(
          "run",
          [](const Program& self, const std::vector<Buffer>& buffers, Workers& workers) {
            const auto all = pointers(buffers);
            const nb::gil_scoped_release release;
            self.run(all, workers);
          },
          "buffers"_a, "workers"_a,
          nb::sig(
              "def run(self, buffers: collections.abc.Sequence[numpy.typing.NDArray[typing.Any]],"
              " workers: Workers) -> None"))
      .def(
          "profile",
          [](const Program& self, const std::vector<Buffer>& buffers, Workers& workers) {
            const auto all = pointers(buffers);
            const nb::gil_scoped_release release;
            return self.profile(all, workers);
          },
          "buffers"_a, "workers"_a,
          nb::sig("def profile(self, buffers: "
                  "collections.abc.Sequence[numpy.typing.NDArray[typing.Any]],"
                  " workers: Workers) -> list[float]"));
  bind_steps(program);
  bind_text_steps(program);
}

template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using StridedFloats = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;

Strided strided(const StridedFloats& of) {
  return {of.data(), of.stride(0), of.stride(1), of.shape(0), of.shape(1)};
}

void bind_weights(nb::module_& m) {
  m.def(
      "as_floats",
      [](const StridedFloats& weights, const Matrix<float>& out) {
        const nb::gil_scoped_release release;
        as_floats(strided(weights), out.data());
      },
      "weights"_a, "out"_a, "Copy a matrix (channel, row) of any strides to contiguous rows.");
  m.def(
      "as_halves",
      [](const StridedFloats& weights, const Matrix<std::uint16_t>& out) {
        const nb::gil_scoped_release release;
        as_halves(strided(weights), out.data());
      },
      "weights"_a, "out"_a, "Copy a matrix like as_floats, rounded to bfloat16.");
  m.def(
      "as_bytes",
      [](const StridedFloats& weights, const Matrix<std::int8_t>& out, const Vector<float>& scale,
         const Vector<std::int32_t>& sums) {
        const nb::gil_scoped_release release;
        as_bytes(strided(weights), out.data(), {scale.data(), sums.data()});
      },
      "weights"_a, "out"_a, "scale"_a, "sums"_a,
      "Round a matrix to int8, with a scale and sum per channel.");
}

void bind_resize(nb::module_& m) {
  m.def(
      "resize",
      [](const Pixels& source, const std::array<double, 4>& box, const Target& target) {
        const Image from{source.data(), source.shape(0), source.shape(1), source.shape(2)};
        const nb::gil_scoped_release release;
        resize(from, {box[0], box[1], box[2], box[3]}, target.data(), target.shape(0),
               target.shape(1));
      },
      "source"_a, "box"_a, "target"_a,
      "Resize the part of an image in a box (top, left, bottom, right) to fill the target.");
}

}  // namespace
}  // namespace slipstream::kernels

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);
  slipstream::kernels::bind_values(m);
  slipstream::kernels::bind_program(m);
  slipstream::kernels::bind_weights(m);
  slipstream::kernels::bind_resize(m);
}
