#pragma once

#include <chrono>

namespace slipstream {

/// Delays the end of this process by a signal, such as SIGTERM, so that a thread can act first. The
/// signal must have its default disposition; otherwise, nothing is caught and the result is -1.
///
/// The result is a descriptor that becomes readable (8 bytes) when the signal arrives. The signal
/// ends the process after `grace`, if it comes again, or by end_by_signal(). Forked children end at
/// once. Call it once for each signal; the descriptor stays open.
int delay_end_by_signal(int number, std::chrono::nanoseconds grace);

/// Ends this process by a signal, as if nothing had been caught.
void end_by_signal(int number);

}  // namespace slipstream
