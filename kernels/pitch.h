#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream::kernels {

/// The distances between pixels of a tensor: bytes to the next one in each direction.
struct Pitch {
  std::ptrdiff_t batch = 0;
  std::ptrdiff_t row = 0;
  std::ptrdiff_t pixel = 0;

  [[nodiscard]] std::ptrdiff_t at(std::size_t in_batch, std::size_t in_row,
                                  std::size_t column) const {
    return static_cast<std::ptrdiff_t>(in_batch) * batch +
           static_cast<std::ptrdiff_t>(in_row) * row + static_cast<std::ptrdiff_t>(column) * pixel;
  }
};

}  // namespace slipstream::kernels
