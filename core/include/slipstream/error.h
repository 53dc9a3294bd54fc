#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

namespace slipstream {

/// Errors are sorted by what the caller should do next; src/slipstream/errors.py has the same
/// kinds.
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

/// The engine's only exception class. It has a complete message, which copies share: threads that
/// wait for the same operation throw copies of the same error, and any of them may drop it last.
/// (std::runtime_error shares its text too, but with counters inside the binary of the C++ library,
/// where ThreadSanitizer cannot see that the last reader comes before the deletion.)
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message)
      : kind_(kind), message_(std::make_shared<const std::string>(std::move(message))) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] const char* what() const noexcept override { return message_->c_str(); }

 private:
  ErrorKind kind_;
  std::shared_ptr<const std::string> message_;
};

/// The concatenation of the arguments as text.
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

/// Checks an invariant of the engine itself; prints the values if it is violated.
#define SLIPSTREAM_ASSERT(condition, ...)                                                        \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      ::slipstream::fail(::slipstream::ErrorKind::kInternal,                                     \
                         "internal error: expected " #condition " at ", __FILE__, ":", __LINE__, \
                         "; please report it with these values: ", __VA_ARGS__);                 \
    }                                                                                            \
  } while (false)
