#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "slipstream/log.h"

namespace slipstream {

/// Logs refused connections. So that repeated attempts do not fill the log, it writes the first few
/// of each minute in full, and the others as a count.
class RefusalLog {
 public:
  explicit RefusalLog(Log log) : log_(std::move(log)) {}

  /// `who` is an address, and `why` the reason of a Handshake.
  void operator()(const std::string& who, const std::string& why) {
    const TimePoint now = Clock::now();
    if (now - window_ >= kWindow) {
      if (dropped_ > 0) {
        log_(LogLevel::kWarning, "refused ", dropped_, " more connections in the past minute");
      }
      window_ = now;
      logged_ = dropped_ = 0;
    }
    if (logged_ == kPerWindow) {
      ++dropped_;
      return;
    }
    ++logged_;
    log_(LogLevel::kWarning, "refused a connection: ", who, " ", why);
  }

 private:
  static constexpr Clock::duration kWindow = std::chrono::minutes(1);
  static constexpr std::uint64_t kPerWindow = 8;

  Log log_;
  TimePoint window_{};  // beginning of the current minute
  std::uint64_t logged_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace slipstream
