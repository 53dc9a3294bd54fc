#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collective/plan.h"
#include "collective/shape.h"

namespace slipstream {

/// One row of the table. The first row that fits a collective, its bytes and its ranks gives the
/// algorithm.
struct Rule {
  Collective collective;
  std::uint64_t max_bytes;  ///< bytes of the larger of one rank's input and output
  std::uint32_t max_size;   ///< ranks
  Algorithm algorithm;
  bool in_dimensions = false;  ///< applies only if the ranks have more than one dimension
};

/// The table, in order. The last row of each collective fits all sizes.
std::span<const Rule> rules();

/// The algorithm for a shape: `forced` if it implements the collective (kAuto never does), or else
/// the algorithm of the table. All ranks of a group get the same.
Algorithm choose(const Shape& shape, Algorithm forced);

/// This rank's plan.
Plan make_plan(const Shape& shape, Algorithm algorithm);

/// The table as text for people, one rule per line.
std::string rules_as_text();

}  // namespace slipstream
