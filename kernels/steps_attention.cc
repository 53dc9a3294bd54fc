#include <memory>
#include <utility>

#include "steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "steps_attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace slipstream::kernels::HWY_NAMESPACE {

void softmax_row(float* row, std::size_t count, float scale, const float* mask);  // steps_text.cc

/// Turns a row of scores into shares in place, or into bfloat16 in `halves` if that is given. Both
/// have room for whole vectors, which end in zeros.
void shares_of(float* row, std::size_t count, float scale, const float* mask,
               std::uint8_t* halves) {
  const Lane d;
  softmax_row(row, count, scale, mask);
  if (halves == nullptr) return;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    write<Number::kBFloat16>(hn::LoadU(d, row + i), halves + 2 * i);
  }
}

}  // namespace slipstream::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace slipstream::kernels {

HWY_EXPORT(shares_of);

namespace {

std::size_t padded(std::size_t channels) { return (channels + 15) / 16 * 16; }

/// The epilogue that writes scores as they are.
Epilogue plain(std::size_t channels) {
  Epilogue epilogue;
  epilogue.scale.assign(padded(channels), 1.0F);
  epilogue.bias.assign(padded(channels), 0.0F);
  return epilogue;
}

/// Computes one head of one image of the batch: two products around a softmax. If q, k and v are
/// bfloat16, so are the shares.
class Head {
 public:
  Head(const Attention& of, Epilogue epilogue)
      : is_half_(of.q.number == Number::kBFloat16),
        size_(of.q.channels / of.heads),
        queries_(of.q.columns),
        keys_(of.k.columns),
        scale_(of.scale) {
    const std::size_t number = size_of(of.q.number);
    by_key_ = shape(keys_, size_ * number / 4, plain(keys_));
    by_key_.input = of.q.pitch;
    by_key_.output.pixel = static_cast<std::ptrdiff_t>(padded(keys_) * 4);
    by_value_ = shape(size_, is_half_ ? (keys_ + 1) / 2 : keys_, std::move(epilogue));
    by_value_.input.pixel = static_cast<std::ptrdiff_t>(padded(keys_) * number);
    by_value_.output = of.output.pitch;
    key_step_ = of.k.pitch.pixel;
    value_step_ = of.v.pitch.pixel;
  }

  void run(const std::uint8_t* q, const std::uint8_t* k, const std::uint8_t* v,
           const std::uint8_t* mask, std::ptrdiff_t mask_step, std::uint8_t* output) const {
    thread_local Aligned<float> scores;
    thread_local Aligned<std::uint8_t> halves, packed;
    scores.resize(queries_ * padded(keys_) + 16);
    halves.resize(is_half_ ? queries_ * padded(keys_) * 2 + 64 : 0);
    auto* sums = reinterpret_cast<std::uint8_t*>(scores.data());
    packed.resize(padded(keys_) * by_key_.runs[0].units * 4);
    pack_into(Matrix{k, key_step_, 4, keys_, by_key_.runs[0].units}, packed.data());
    multiply(by_key_, packed.data(), q, sums);
    for (std::size_t query = 0; query < queries_; ++query) {
      const std::uint8_t* row = mask;
      if (mask != nullptr) row += static_cast<std::ptrdiff_t>(query) * mask_step;
      std::uint8_t* half = is_half_ ? halves.data() + query * padded(keys_) * 2 : nullptr;
      HWY_DYNAMIC_DISPATCH(shares_of)
      (scores.data() + query * padded(keys_), keys_, scale_, reinterpret_cast<const float*>(row),
       half);
    }
    packed.resize(padded(size_) * by_value_.runs[0].units * 4);
    if (is_half_) {
      pack_into(Halves{v, value_step_, size_, keys_}, packed.data());
    } else {
      pack_into(Matrix{v, 4, value_step_, size_, keys_}, packed.data());
    }
    multiply(by_value_, packed.data(), is_half_ ? halves.data() : sums, output);
  }

 private:
  [[nodiscard]] Convolution shape(std::size_t channels, std::size_t units,
                                  Epilogue epilogue) const {
    Convolution of;
    of.operand = is_half_ ? Operand::kBFloat16 : Operand::kFloat32;
    of.columns = queries_;
    of.channels = channels;
    of.runs = {{0, units}};
    of.epilogue = std::move(epilogue);
    return of;
  }
  static void multiply(const Convolution& of, const std::uint8_t* packed, const std::uint8_t* input,
                       std::uint8_t* output) {
    const Epilogue& end = of.epilogue;
    const std::size_t panels = Panels(of.channels, groups_at_once()).count;
    convolve(of, {input, input, output, end.scale.data(), end.bias.data(), packed}, 0, of.columns,
             0, panels);
  }

  bool is_half_;
  std::size_t size_, queries_, keys_;
  float scale_;
  Convolution by_key_, by_value_;
  std::ptrdiff_t key_step_ = 0, value_step_ = 0;
};

}  // namespace

Step attention(const Attention& of, Epilogue epilogue) {
  auto head = std::make_shared<Head>(of, std::move(epilogue));
  return {"attention", [=](const Memory& memory, Workers& workers) {
            workers.share(of.q.batch * of.heads, [&](std::size_t part) {
              const std::size_t batch = part / of.heads, which = part % of.heads;
              const auto at = [&](const Tensor& tensor) {
                return memory.at(tensor) + tensor.pitch.at(batch, 0, 0) +
                       which * (tensor.channels / of.heads) * size_of(tensor.number);
              };
              const std::uint8_t* row = nullptr;
              if (of.mask) row = memory.at(*of.mask) + of.mask->pitch.at(batch, 0, 0);
              const std::ptrdiff_t step =
                  of.mask && of.mask->columns > 1 ? of.mask->pitch.pixel : 0;
              head->run(at(of.q), at(of.k), at(of.v), row, step, at(of.output));
            });
          }};
}

}  // namespace slipstream::kernels
#endif
