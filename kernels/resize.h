#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream::kernels {

/// An image: rows of pixels of 1 or 3 bytes, without gaps.
struct Image {
  const std::uint8_t* pixels = nullptr;
  std::size_t rows = 0, columns = 0, channels = 0;
};

/// A rectangle of an image, in pixels from its upper left corner; edges may be within pixels.
struct Box {
  double top = 0, left = 0, bottom = 0, right = 0;
};

/// Resizes the part of `from` in `box` to `rows` x `columns` pixels at `to`. The box must not be
/// empty, and must be inside the image. Each pixel is a weighted mean of those around it; the
/// weights fall linearly to 0 at a distance of one pixel of the coarser of the two images, so that
/// reducing an image causes no aliasing. Pixels next to the box count if they exist, so parts of an
/// image join without a seam. The result is computed in float32 and rounded once. Only the
/// necessary pixels are read; one row is allocated.
void resize(const Image& from, const Box& box, std::uint8_t* to, std::size_t rows,
            std::size_t columns);

}  // namespace slipstream::kernels
