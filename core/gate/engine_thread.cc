#include "gate/engine_thread.h"

#include "slipstream/error.h"

namespace slipstream {
namespace {
thread_local int depth = 0;
}  // namespace

EngineThread::EngineThread() noexcept { ++depth; }

EngineThread::~EngineThread() { --depth; }

bool EngineThread::is_here() noexcept { return depth > 0; }

void EngineThread::refuse(const char* call) {
  if (!is_here()) return;
  fail(ErrorKind::kInternal, call,
       " was called by a thread of the engine, which must never call a device; please report it");
}

}  // namespace slipstream
