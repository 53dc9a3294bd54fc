#pragma once

#include <chrono>

namespace slipstream {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Nanoseconds = std::chrono::nanoseconds;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;

inline double seconds(Clock::duration span) { return std::chrono::duration<double>(span).count(); }

}  // namespace slipstream
