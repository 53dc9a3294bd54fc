#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "aligned.h"
#include "epilogue.h"
#include "pitch.h"
#include "workers.h"

namespace slipstream::kernels {

/// The memory of a tensor: pixels of an image, or the tokens of a text as one row of pixels. The
/// channels of a pixel are contiguous. Buffer 0 is the program's own memory; the others are the
/// caller's, in the order in which run() gets them.
struct Tensor {
  Number number = Number::kFloat32;
  std::size_t buffer = 0;
  std::size_t offset = 0;  ///< bytes to the first pixel
  std::size_t batch = 1, rows = 1, columns = 1, channels = 1;
  Pitch pitch;

  [[nodiscard]] std::size_t pixels() const { return batch * rows * columns; }
};

/// The memory of one run.
class Memory {
 public:
  explicit Memory(std::vector<std::uint8_t*> buffers) : buffers_(std::move(buffers)) {}
  [[nodiscard]] std::uint8_t* at(const Tensor& tensor) const {
    return buffers_[tensor.buffer] + tensor.offset;
  }

 private:
  std::vector<std::uint8_t*> buffers_;
};

struct Step {
  std::string name;
  std::function<void(const Memory&, Workers&)> run;
};

/// A list of steps over one block of memory. Everything is decided before it runs: the location of
/// every tensor, the order of the steps, and their kernels.
class Program {
 public:
  explicit Program(std::size_t bytes) : bytes_(bytes) {}

  void add(Step step) { steps_.push_back(std::move(step)); }
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }

  /// Runs all steps; `buffers` are the caller's inputs and outputs. Several threads may run one
  /// program at the same time, each with its own workers.
  void run(const std::vector<std::uint8_t*>& buffers, Workers& workers) const;
  /// Does the same, and returns the seconds of each step.
  [[nodiscard]] std::vector<double> profile(const std::vector<std::uint8_t*>& buffers,
                                            Workers& workers) const;

 private:
  std::size_t bytes_;
  std::vector<Step> steps_;
};

}  // namespace slipstream::kernels
