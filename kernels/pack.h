#pragma once

#include <cstddef>
#include <cstdint>

#include "aligned.h"

// Packing of weights in the order in which products read them: panels of [unit][column][4 bytes].
namespace slipstream::kernels {

/// The division of groups of 16 channels into panels. A panel is computed at once. There are as few
/// panels as the CPU's registers allow, of sizes as equal as possible.
struct Panels {
  std::size_t groups, count;

  Panels(std::size_t channels, std::size_t at_once)
      : groups((channels + 15) / 16), count((groups + at_once - 1) / at_once) {}
  /// The first group of a panel.
  [[nodiscard]] std::size_t begin(std::size_t panel) const { return panel * groups / count; }
};

/// The most groups that this CPU computes at once.
std::size_t groups_at_once();

/// A matrix of units of four bytes in memory: unit u of channel c is at data + c channel_step + u
/// unit_step.
struct Matrix {
  const std::uint8_t* data;
  std::ptrdiff_t channel_step, unit_step;
  std::size_t channels, units;
};

/// Packs a matrix; the last panel is padded with zeros to 16 columns.
Aligned<std::uint8_t> pack(const Matrix& matrix);
/// Does the same into given memory of (channels rounded up to 16) * units * 4 bytes.
void pack_into(const Matrix& matrix, std::uint8_t* packed);

/// A matrix of numbers of two bytes, with contiguous channels: row r is at data + r row_step.
struct Halves {
  const std::uint8_t* data;
  std::ptrdiff_t row_step;
  std::size_t channels, rows;

  [[nodiscard]] std::size_t units() const { return (rows + 1) / 2; }
};

/// Packs units of two rows each, with zeros after the last row, into (channels rounded up to 16) *
/// units() * 4 bytes. It reads whole vectors of 16 numbers.
void pack_into(const Halves& halves, std::uint8_t* packed);

/// Multiplies packed weights of all panels by a factor per row that is known only at run time. The
/// numbers of a unit belong to one row (float32) or, with `halves`, to two consecutive rows
/// (bfloat16).
void multiply_rows(const std::uint8_t* packed, std::size_t channels, std::size_t units, bool halves,
                   const float* factors, std::uint8_t* multiplied);

}  // namespace slipstream::kernels
