#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collective/plan.h"
#include "collective/shape.h"

namespace slipstream {

/// One line of the table: the first that fits a collective's bytes and ranks names the algorithm.
struct Rule {
  Collective collective;
  std::uint64_t max_bytes;  ///< of what one rank passes in or gets out, whichever is more
  std::uint32_t max_size;   ///< ranks
  Algorithm algorithm;
  bool in_dimensions = false;  ///< only where the ranks are laid out in more than one
};

/// The table, in order; the last line of each collective fits everything.
std::span<const Rule> rules();

/// The algorithm for a shape: `forced` where it implements the collective (kAuto forces none), else
/// the table's. Every rank of a group chooses the same.
Algorithm choose(const Shape& shape, Algorithm forced);

/// This rank's plan.
Plan make_plan(const Shape& shape, Algorithm algorithm);

/// The table as text, one line a rule, for people.
std::string rules_as_text();

}  // namespace slipstream
