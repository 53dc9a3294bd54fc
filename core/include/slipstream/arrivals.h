#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

/// The connections of a listening socket, sorted by their first bytes. The caller owns the
/// descriptors, which are non-blocking and close-on-exec.
struct Arrivals {
  std::vector<int> greeted;          ///< they begin with the greeting, whose bytes are still unread
  std::vector<int> silent;           ///< they have sent nothing, or a part of the greeting
  std::vector<std::string> refused;  ///< "10.0.0.1:4000"; they sent something else and were closed
  std::size_t accepted = 0;          ///< number of connections that were accepted by this call
  int error = 0;                     ///< errno if no more can be accepted now (EMFILE), else 0
};

/// Accepts up to `most` waiting connections of a listening TCP socket, and sorts them and `silent`,
/// the connections that had not greeted before. Never blocks. If `greeting` is empty, nothing is
/// read, and all are greeted.
Arrivals sort_arrivals(int listener, std::span<const int> silent, std::size_t most,
                       std::string_view greeting);

}  // namespace slipstream
