#pragma once

namespace slipstream {

/// Marks the calling thread as a thread of the engine while the object lives; a caller that drives
/// the engine for a moment is one meanwhile. All calls of a device throw in such a thread, because
/// a call that blocks until a gate opens would hold up the thread that must open it.
class EngineThread {
 public:
  EngineThread() noexcept;
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  ~EngineThread();

  [[nodiscard]] static bool is_here() noexcept;
  /// Throws Error(kInternal) in a thread of the engine; `call` is the name of the device's
  /// function.
  static void refuse(const char* call);
};

}  // namespace slipstream
