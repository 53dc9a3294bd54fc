#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream::kernels {

/// A picture: rows of pixels of 1 or 3 bytes, without gaps.
struct Picture {
  const std::uint8_t* pixels = nullptr;
  std::size_t rows = 0, columns = 0, channels = 0;
};

/// A part of a picture, in pixels from its upper left corner; edges may lie within pixels.
struct Box {
  double top = 0, left = 0, bottom = 0, right = 0;
};

/// Resizes the part of `from` in `box`, which is not empty and inside of it, to `rows` x `columns`
/// pixels at `to`. Each pixel is a mean of those around it whose weights fall linearly to 0 at one
/// pixel of the coarser of the two pictures, so what is made smaller is not aliased. Pixels next to
/// the box count where they exist: parts of a picture join without a seam. Computed in float32 and
/// rounded once. Reads only what it needs; allocates a row.
void resize(const Picture& from, const Box& box, std::uint8_t* to, std::size_t rows,
            std::size_t columns);

}  // namespace slipstream::kernels
