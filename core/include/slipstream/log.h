#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "slipstream/error.h"

namespace slipstream {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };

/// Receives all records of one runtime. Any of its threads may call it, so it must not block.
using LogSink = std::function<void(LogLevel, const std::string&)>;

/// Writes records to a sink. The runtime builds this value and passes it on.
class Log {
 public:
  Log() = default;
  explicit Log(LogSink sink) : sink_(std::move(sink)) {}

  template <typename... Parts>
  void operator()(LogLevel level, const Parts&... parts) const {
    if (sink_) sink_(level, concat(parts...));
  }

 private:
  LogSink sink_;
};

}  // namespace slipstream
