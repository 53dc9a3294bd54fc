#include <algorithm>

#include "engine/engine.h"

// For those who look after a group in which this rank may have nothing in flight.
namespace slipstream {

void Engine::watch(Group& group, GroupWatcher* watcher) {
  driver_.run_exclusively([&] {
    group.watcher = watcher;
    if (watcher == nullptr) return;
    const std::uint64_t most = std::ranges::max(group.submitted);
    if (most > group.started) watcher->ahead(most);
    if (group.failure) watcher->troubled();
  });
}

bool Engine::wait_for_event(Completion& event, TimePoint until) {
  listeners_.fetch_add(1);
  const bool done = driver_.wait(event, until, /*returns_soon=*/true);
  listeners_.fetch_sub(1);
  return done;
}

void Engine::nudge(Group& group, std::uint32_t rank) {
  driver_.run_exclusively([&] {
    start_submitted();
    const auto latest = group.find(group.started - 1);
    if (!latest) return;
    Frame frame = frame_for(FrameKind::kProbe, group, latest->sequence());
    frame.fingerprint = group.fingerprint(latest->request(), rank);
    peer_of(group, rank).send_control(frame, {});
  });
}

}  // namespace slipstream
