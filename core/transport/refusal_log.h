#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "slipstream/log.h"

namespace slipstream {

/// Logs connections that were refused, so that somebody who knocks all day does not fill the log:
/// the first few of each minute in full, the others as a count.
class RefusalLog {
 public:
  explicit RefusalLog(Log log) : log_(std::move(log)) {}

  /// `who` is an address, `why` a Handshake's reason.
  void operator()(const std::string& who, const std::string& why) {
    const TimePoint now = Clock::now();
    if (now - window_ >= kWindow) {
      if (dropped_ > 0) {
        log_(LogLevel::kWarning, "refused ", dropped_, " more connections in the minute before");
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
  TimePoint window_{};  // where the current minute began
  std::uint64_t logged_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace slipstream
