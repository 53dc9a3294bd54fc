#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace slipstream {

/// Errors are sorted by what the caller should do next; src/slipstream/errors.py has the same tree.
enum class ErrorKind : std::uint8_t {
  kUsage,        ///< fix the call
  kConfig,       ///< fix the setting
  kPeer,         ///< a peer is gone: rebuild the group
  kPeerTimeout,  ///< a peer did not answer in time: rebuild the group
  kMismatch,     ///< ranks passed different operations: fix the script
  kAborted,      ///< the operation or its group was ended on purpose
  kAuth,         ///< the job key was not proved
  kUnsupported,  ///< choose another way
  kInternal,     ///< report it
};

/// The one exception class of the engine. Thread-safe to copy; carries a complete message.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// The arguments written one after another.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws an Error whose message is the concatenation of `parts`.
template <typename... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, concat(parts...));
}

}  // namespace slipstream

/// An invariant of the engine itself; prints the values when it does not hold.
#define SLIPSTREAM_ASSERT(condition, ...)                                                   \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      ::slipstream::fail(::slipstream::ErrorKind::kInternal, "expected " #condition " at ", \
                         __FILE__, ":", __LINE__, "; please report: ", __VA_ARGS__);        \
    }                                                                                       \
  } while (false)
