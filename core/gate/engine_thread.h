#pragma once

namespace slipstream {

/// Marks the calling thread as a thread of the engine as long as the object lives. A caller that
/// drives the engine is one while it drives. Devices refuse calls from such threads: a call may
/// block until a gate opens, and then the thread that has to open the gate would be blocked.
class EngineThread {
 public:
  EngineThread() noexcept;
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  ~EngineThread();

  [[nodiscard]] static bool is_here() noexcept;
  /// Throws Error(kInternal) if this is a thread of the engine. `call` names the device's function.
  static void refuse(const char* call);
};

}  // namespace slipstream
