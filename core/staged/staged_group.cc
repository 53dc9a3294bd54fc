#include "staged/staged_group.h"

#include <algorithm>
#include <utility>

#include "staged/staged_layout.h"

namespace slipstream {
namespace {

// The time that operations have to end after their group was closed.
constexpr Nanoseconds kEndPatience = 10s;

}  // namespace

bool StagedOperation::is_exchanged() const {
  return std::ranges::all_of(chunks, [](const auto& chunk) { return chunk->done(); });
}

const Error* StagedOperation::error() const {
  for (const auto& chunk : chunks) {
    if (chunk->done() && chunk->error()) return &*chunk->error();
  }
  return nullptr;
}

StagedGroup::StagedGroup(Engine& engine, std::shared_ptr<Group> group, Device& device,
                         StagingOptions options)
    : engine_(engine), group_(std::move(group)), device_(device), options_(std::move(options)) {}

void StagedGroup::close() noexcept {
  if (!origin_.is_here()) return;  // it owns nothing
  try {
    engine_.close_group(*group_);
    // Held operations end once the device has filled their slots, so the device comes first.
    for (auto* const staging : {&collectives_, &sends_, &receives_}) {
      if (*staging) (*staging)->finish();
    }
    const TimePoint limit = Clock::now() + kEndPatience;
    for (const auto& completion : in_flight_) engine_.wait(*completion, limit);
    in_flight_.clear();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): an engine that has failed runs nothing
  }
}

StagedOperation StagedGroup::submit(const Request& request, StreamHandle current) {
  note_ended();
  if (failure_) throw Error(*failure_);
  const StagedLayout layout = staged_layout(request, group_->rank(), group_->size());
  StagedOperation operation{.staging = &staging_for(request.collective)};
  operation.transfer = operation.staging->plan(layout.rows);
  try {
    const Transfer& transfer = operation.transfer;
    for (std::uint32_t i = 0; i < transfer.num_chunks; ++i) {
      GatedRing& ring = operation.staging->ring();
      const std::uint32_t sequence = transfer.sequence + i;
      Request part = request_of_chunk(request, layout, transfer, i, ring.slot(sequence).data());
      part.ring = &ring;
      part.chunk = sequence;
      operation.chunks.push_back(engine_.submit(group_, std::move(part)));
      in_flight_.push_back(operation.chunks.back());
    }
  } catch (...) {
    // The engine knows chunks that the device will never fill.
    if (!operation.chunks.empty()) operation.staging->ring().open();
    throw;
  }
  operation.staging->submit(operation.transfer, current);
  return operation;
}

Staging& StagedGroup::staging_for(Collective collective) {
  std::unique_ptr<Staging>& staging = collective == Collective::kSend      ? sends_
                                      : collective == Collective::kReceive ? receives_
                                                                           : collectives_;
  if (!staging) staging = std::make_unique<Staging>(device_, options_);
  return *staging;
}

/// Forgets operations that have ended, and keeps the first error.
void StagedGroup::note_ended() {
  while (!in_flight_.empty() && in_flight_.front()->done()) {
    const std::optional<Error>& error = in_flight_.front()->error();
    if (error && !failure_) failure_.emplace(*error);
    in_flight_.pop_front();
  }
}

}  // namespace slipstream
