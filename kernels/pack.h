#pragma once

#include <cstddef>
#include <cstdint>

#include "aligned.h"

// Weights in the order in which products read them: panels of [unit][column][4 bytes].
namespace slipstream::kernels {

/// How groups of 16 channels are shared out to panels, of which each is computed at once: as few
/// panels as the CPU's registers allow, as even as possible.
struct Panels {
  std::size_t groups, count;

  Panels(std::size_t channels, std::size_t at_once)
      : groups((channels + 15) / 16), count((groups + at_once - 1) / at_once) {}
  /// The first group of a panel.
  [[nodiscard]] std::size_t begin(std::size_t panel) const { return panel * groups / count; }
};

/// Groups that are computed at once on this CPU.
std::size_t groups_at_once();

/// Units of four bytes where they lie: unit u of channel c at data + c channel_step + u unit_step.
struct Matrix {
  const std::uint8_t* data;
  std::ptrdiff_t channel_step, unit_step;
  std::size_t channels, units;
};

/// Packs a matrix; the last panel is padded with zeros to 16 columns.
Aligned<std::uint8_t> pack(const Matrix& matrix);
/// The same into memory of (channels rounded up to 16) * units * 4 bytes.
void pack_into(const Matrix& matrix, std::uint8_t* packed);

/// Numbers of two bytes, row by row, channels one after another: row r at data + r row_step.
struct Halves {
  const std::uint8_t* data;
  std::ptrdiff_t row_step;
  std::size_t channels, rows;

  [[nodiscard]] std::size_t units() const { return (rows + 1) / 2; }
};

/// Packs units of two rows each, zeros after the last row, into (channels rounded up to 16) *
/// units() * 4 bytes. Reads whole vectors of 16 numbers.
void pack_into(const Halves& halves, std::uint8_t* packed);

/// Multiplies packed weights, of all panels, by a factor per row that is known only at run time: a
/// unit's numbers are of one row (float32) or, with `halves`, of two (bfloat16), which follow each
/// other.
void multiply_rows(const std::uint8_t* packed, std::size_t channels, std::size_t units, bool halves,
                   const float* factors, std::uint8_t* multiplied);

}  // namespace slipstream::kernels
