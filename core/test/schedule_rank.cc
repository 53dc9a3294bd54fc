#include "test/schedule_rank.h"

#include <algorithm>

namespace slipstream::test {
namespace {

/// A bound of the memory that all copies of a rank together need.
std::size_t pinned_bytes(const Schedule& schedule) {
  std::size_t sum = 0;
  for (const ScheduledCall& call : schedule.calls) {
    const auto size = static_cast<std::uint32_t>(schedule.groups[call.group].size());
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      const CallSizes sizes = sizes_of(call, rank, size);
      sum += 3 * (sizes.input + sizes.output);
    }
  }
  return sum;
}

FakeDeviceOptions device_options(const Schedule& schedule, std::uint32_t rank) {
  FakeDeviceOptions options = schedule.device;
  options.seed += rank;
  const Trouble& trouble = schedule.trouble;
  if (trouble.rank != rank) return options;
  if (trouble.kind == Trouble::Kind::kCall) options.failing_call = trouble.device_number;
  if (trouble.kind == Trouble::Kind::kCommand) options.failing_command = trouble.device_number;
  return options;
}

const void* as_input(DeviceAddress address) { return reinterpret_cast<const void*>(address); }
void* as_output(DeviceAddress address) { return reinterpret_cast<void*>(address); }

}  // namespace

ScheduleRank::ScheduleRank(EngineRank& rank, const Schedule& schedule, EngineWorld& world)
    : rank_(rank),
      schedule_(schedule),
      world_(world),
      random_(schedule.seed * 16 + rank.rank),
      device_(device_options(schedule, rank.rank)),
      members_(schedule.groups.size()),
      expected_(schedule.calls.size()) {}

void ScheduleRank::expect() {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const auto& ranks = schedule_.groups[i];
    if (std::ranges::find(ranks, rank_.rank) == ranks.end()) continue;
    members_[i].group = rank_.engine->make_group(concat("group ", i), ranks);
    members_[i].reference = rank_.engine->make_group(concat("reference ", i), ranks);
  }
  for (std::size_t i = 0; i < schedule_.calls.size(); ++i) {
    const ScheduledCall& call = schedule_.calls[i];
    const std::shared_ptr<Group>& group = members_[call.group].reference;
    if (!group) continue;
    Flight flight{.call = &call, .index = i};
    begin_on_host(flight, group);
    for (const auto& each : flight.pending) rank_.finish(*each);
    expected_[i] = call.in_place ? flight.memory->input : flight.memory->output;
  }
}

void ScheduleRank::run() {
  try {
    blocks_.emplace(device_, schedule_.num_streams, pinned_bytes(schedule_));
    for (Member& member : members_) {
      if (!member.group) continue;
      member.staged =
          std::make_unique<StagedGroup>(*rank_.engine, member.group, device_, schedule_.staging);
    }
    for (std::size_t i = 0; i < schedule_.calls.size(); ++i) play(i);
  } catch (const Error& error) {
    note_failure(error);
  }
  finish();
}

void ScheduleRank::play(std::size_t index) {
  const ScheduledCall& call = schedule_.calls[index];
  say(concat("makes call ", index, ", ", test::describe(call)));
  const Trouble& trouble = schedule_.trouble;
  if (trouble.rank == rank_.rank && trouble.call == index) make_trouble(trouble);
  Member& member = members_[call.group];
  if (member.group && !member.failed && !has_ended_) begin(index, member);
  for (Flight& flight : flights_) {
    if (flight.settled_at <= index) settle(flight);
  }
}

void ScheduleRank::make_trouble(const Trouble& trouble) {
  Member& member = members_[trouble.group];
  switch (trouble.kind) {
    case Trouble::Kind::kKill:
      return world_.network().kill_rank(rank_.rank);
    case Trouble::Kind::kAbort:
      return rank_.engine->abort_group(*member.group, "a test");
    case Trouble::Kind::kClose:
      member.failed = true;
      return member.staged->close();
    case Trouble::Kind::kLeave:
      has_ended_ = true;
      if (below(2) == 0) close_groups();
      return rank_.engine->close();
    default:  // the device fails by itself
      return;
  }
}

void ScheduleRank::begin(std::size_t index, Member& member) {
  const ScheduledCall& call = schedule_.calls[index];
  Flight& flight = flights_.emplace_back(Flight{.call = &call, .index = index});
  flight.settled_at = index + below(4);
  try {
    if (call.on_host) {
      begin_on_host(flight, member.group);
    } else {
      begin_on_device(flight, member);
    }
    flight.begun = true;
  } catch (const Error& error) {
    member.failed = true;
    note_failure(error);
  }
  const std::scoped_lock lock(mutex_);
  for (const StagedOperation& each : flight.operations) {
    submitted_.insert(submitted_.end(), each.chunks.begin(), each.chunks.end());
  }
  submitted_.insert(submitted_.end(), flight.pending.begin(), flight.pending.end());
}

void ScheduleRank::begin_on_host(Flight& flight, const std::shared_ptr<Group>& group) {
  const ScheduledCall& call = *flight.call;
  const CallSizes sizes = sizes_of(call, group->rank(), group->size());
  flight.memory = std::make_unique<HostMemory>();
  HostMemory& memory = *flight.memory;
  memory.input.resize(sizes.input);
  memory.output.resize(sizes.output);
  fill(memory.input, call, group->rank(), schedule_.seed + flight.index);
  if (call.has_residual) memory.residual = residual_of(call, group->rank());
  Request request = request_of(call, *group, memory);
  request.input = memory.input.data();
  request.output = call.in_place ? memory.input.data() : memory.output.data();
  if (call.kind != ScheduledCall::Kind::kMessage) {
    flight.pending.push_back(rank_.engine->submit(group, request));
    return;
  }
  if (group->rank() == call.request.root) {
    request.root = call.to;
    flight.pending.push_back(rank_.engine->submit(group, request));
  } else if (group->rank() == call.to) {
    request.collective = Collective::kReceive;
    flight.pending.push_back(rank_.engine->submit(group, request));
  }
}

void ScheduleRank::begin_on_device(Flight& flight, Member& member) {
  const ScheduledCall& call = *flight.call;
  const Group& group = *member.group;
  const CallSizes sizes = sizes_of(call, group.rank(), group.size());
  const std::size_t stream = below(schedule_.num_streams);
  flight.memory = std::make_unique<HostMemory>();
  HostMemory& memory = *flight.memory;
  memory.input.resize(sizes.input);
  fill(memory.input, call, group.rank(), schedule_.seed + flight.index);
  if (call.has_residual) memory.residual = residual_of(call, group.rank());
  const StreamBlock input = blocks_->take(stream, sizes.input);
  const StreamBlock output = call.in_place ? input : blocks_->take(stream, sizes.output);
  flight.blocks = {input};
  if (!call.in_place) flight.blocks.push_back(output);
  flight.output = output.address;
  blocks_->upload(stream, input.address, memory.input);
  if (call.kind == ScheduledCall::Kind::kExchange) upload_own_part(flight, group, stream);
  flight.made = blocks_->mark(stream);
  Request request = request_of(call, group, memory);
  request.input = as_input(input.address);
  request.output = as_output(output.address);
  const auto submit = [&](const Request& part) {
    flight.operations.push_back(member.staged->submit(part, blocks_->stream(stream)));
  };
  if (call.kind == ScheduledCall::Kind::kCollective) return submit(request);
  if (call.kind == ScheduledCall::Kind::kExchange) return exchange(flight, group, submit);
  if (group.rank() == call.request.root) {
    request.root = call.to;
    submit(request);
  } else if (group.rank() == call.to) {
    request.collective = Collective::kReceive;
    submit(request);
  }
}

void ScheduleRank::upload_own_part(const Flight& flight, const Group& group, std::size_t stream) {
  const ScheduledCall& call = *flight.call;
  const PartOffsets offsets = offsets_of(call, group.rank());
  const std::size_t num_bytes =
      call.parts[group.rank()][group.rank()] * size_of(call.request.dtype);
  const std::span<const std::byte> input(flight.memory->input);
  blocks_->upload(stream, flight.output + offsets.received[group.rank()],
                  input.subspan(offsets.sent[group.rank()], num_bytes));
}

/// Sends and receives the parts in pieces, in the order of slipstream.torch: no rank waits for room
/// in its ring while another one waits for a receive that comes later.
void ScheduleRank::exchange(const Flight& flight, const Group& group,
                            const std::function<void(const Request&)>& submit) {
  const ScheduledCall& call = *flight.call;
  const std::uint32_t self = group.rank(), size = group.size();
  const PartOffsets offsets = offsets_of(call, self);
  const DType dtype = call.request.dtype;
  const std::uint64_t most = schedule_.staging.ring.slot_bytes / size_of(dtype);
  for (std::uint32_t distance = 1; distance < size; ++distance) {
    const std::uint32_t to = (self + distance) % size, from = (self + size - distance) % size;
    const std::uint64_t sent = call.parts[self][to], received = call.parts[from][self];
    for (std::uint64_t at = 0; at < std::max(sent, received); at += most) {
      Request request{.collective = Collective::kSend, .dtype = dtype, .root = to};
      request.input = as_input(flight.blocks[0].address + offsets.sent[to] + at * size_of(dtype));
      request.count = std::min(most, sent - std::min(at, sent));
      if (request.count > 0) submit(request);
      request = {.collective = Collective::kReceive, .dtype = dtype, .root = from};
      request.output = as_output(flight.output + offsets.received[from] + at * size_of(dtype));
      request.count = std::min(most, received - std::min(at, received));
      if (request.count > 0) submit(request);
    }
  }
}

Request ScheduleRank::request_of(const ScheduledCall& call, const Group& group,
                                 HostMemory& memory) {
  Request request = call.request;
  request.residual = call.has_residual ? memory.residual.data() : nullptr;
  if (call.kind != ScheduledCall::Kind::kExchange) return request;
  request.send_counts = call.parts[group.rank()];
  for (const auto& sent : call.parts) request.receive_counts.push_back(sent[group.rank()]);
  return request;
}

}  // namespace slipstream::test
