#include "slipstream/device_group.h"

#include <mutex>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "staged/staged_group.h"

namespace slipstream {
namespace {

StagingOptions staging_options(const DeviceOptions& options) {
  return {.ring = {.num_slots = options.num_slots, .slot_bytes = options.slot_bytes}};
}

}  // namespace

struct DeviceGroup::State {
  State(std::shared_ptr<RuntimeParts> kept, Engine& runs, std::shared_ptr<Group> ranks,
        const DeviceOptions& options)
      : parts(std::move(kept)),
        engine(runs),
        members(std::move(ranks)),
        group(runs, members, kept_cuda_device(options.library, options.ordinal),
              staging_options(options)) {}

  std::shared_ptr<RuntimeParts> parts;
  Engine& engine;
  std::shared_ptr<Group> members;
  std::mutex mutex;
  StagedGroup group;  // guarded by mutex
};

struct DeviceHandle::Parts {
  std::shared_ptr<DeviceGroup::State> state;
  StagedOperation operation;
};

void DeviceHandle::wait_on(CudaStream stream) const {
  const std::scoped_lock lock(parts_->state->mutex);
  StagedGroup::wait(StreamHandle{stream}, parts_->operation);
}

bool DeviceHandle::done() const {
  if (!parts_->operation.is_exchanged()) return false;
  const std::scoped_lock lock(parts_->state->mutex);
  try {
    return StagedGroup::is_done(parts_->operation);
  } catch (const Error&) {
    return true;  // a device that has failed copies nothing
  }
}

bool DeviceHandle::wait(std::chrono::nanoseconds timeout) const {
  const TimePoint until = Clock::now() + timeout;
  for (const auto& chunk : parts_->operation.chunks) {
    if (!parts_->state->engine.wait(*chunk, until)) return false;
  }
  return true;
}

std::string DeviceHandle::describe() const {
  for (const auto& chunk : parts_->operation.chunks) {
    if (chunk->done()) continue;
    std::string text = parts_->state->engine.state_of(*chunk);
    if (!text.empty()) return text;
    if (!chunk->done()) return "the GPU has not computed its data yet";
  }
  return "the operation has ended in the meantime";
}

void DeviceHandle::check() const {
  if (const Error* error = parts_->operation.error()) throw Error(*error);
}

DeviceGroup::DeviceGroup(std::shared_ptr<RuntimeParts> parts, Engine& engine,
                         std::shared_ptr<Group> group, const DeviceOptions& options)
    : state_(std::make_shared<State>(std::move(parts), engine, std::move(group), options)) {}

DeviceGroup::~DeviceGroup() = default;

void DeviceGroup::close() {
  const std::scoped_lock lock(state_->mutex);
  state_->group.close();
}

std::uint32_t DeviceGroup::rank() const { return state_->members->rank(); }

std::uint32_t DeviceGroup::size() const { return state_->members->size(); }

DeviceHandle DeviceGroup::submit(const Request& request, CudaStream current) {
  const std::scoped_lock lock(state_->mutex);
  auto operation = state_->group.submit(request, StreamHandle{current});
  return DeviceHandle(
      std::make_shared<DeviceHandle::Parts>(DeviceHandle::Parts{state_, std::move(operation)}));
}

}  // namespace slipstream
