#include "engine/stream_lead.h"

#include <algorithm>

namespace slipstream {

void StreamLead::waited(TimePoint now, Nanoseconds time) {
  waited_ = now;
  unheard_ = std::min(kLead, unheard_ + time);
}

/// The current leader continues; if several ranks begin at the same time, the lowest leads.
bool StreamLead::hears(TimePoint now, std::uint32_t rank) {
  const bool decides = leads() && now - waited_ < kLead;
  const bool is_led = !leads() && now - heard_ < kLead;
  if ((decides && rank > rank_) || (is_led && rank > leader_)) return false;
  leader_ = rank;
  heard_ = now;
  unheard_ = {};
  return true;
}

}  // namespace slipstream
