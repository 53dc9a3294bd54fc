#include <algorithm>

#include "test/schedule_rank.h"

// The end of calls, and the comparison of their results.
namespace slipstream::test {

void ScheduleRank::settle(Flight& flight) {
  if (!flight.begun || flight.settled) return;
  flight.settled = true;
  say(concat("waits for call ", flight.index, ", ", test::describe(*flight.call)));
  for (const auto& each : flight.pending) await(*each);
  if (flight.operations.empty() || has_ended_ || device_failed_) return;
  try {
    wait_on_device(flight);
  } catch (const Error& error) {
    note_failure(error);
  }
}

/// Reads the result in a stream that waits for it, and gives the memory to that stream. Sometimes
/// the CPU waits, and then the memory belongs to any stream.
void ScheduleRank::wait_on_device(Flight& flight) {
  const std::size_t stream = below(schedule_.num_streams);
  const bool polls = below(4) == 0;
  blocks_->wait(stream, flight.made);
  for (const StagedOperation& each : flight.operations) {
    if (!polls) StagedGroup::wait(blocks_->stream(stream), each);
    while (polls && !StagedGroup::is_done(each)) std::this_thread::sleep_for(50us);
  }
  const std::size_t num_bytes = expected_[flight.index].size();
  flight.result = blocks_->download(stream, flight.output, num_bytes);
  for (const StreamBlock& block : flight.blocks) {
    blocks_->give_back(stream, block, below(2) == 0);
  }
}

/// Waits for the engine, and leaves if it waits for a device that has failed.
void ScheduleRank::await(Completion& completion) {
  while (!rank_.engine->wait(completion, Clock::now() + 50ms)) {
    if (!device_.faults().empty()) leave();
  }
}

/// Ends as a script ends after an error.
void ScheduleRank::leave() {
  close_groups();
  rank_.engine->close();
}

void ScheduleRank::close_groups() {
  for (Member& member : members_) {
    if (member.staged) member.staged->close();
  }
}

void ScheduleRank::finish() {
  if (must_leave_) leave();
  for (Flight& flight : flights_) settle(flight);
  say("synchronizes its device");
  try {
    if (blocks_ && !device_failed_) blocks_->synchronize();
  } catch (const Error& error) {
    note_failure(error);
  }
  if (must_leave_) leave();
  for (Flight& flight : flights_) check(flight);
  const bool may_fault = schedule_.trouble.kind == Trouble::Kind::kCommand;
  for (const std::string& fault : device_.faults()) {
    if (!may_fault || schedule_.trouble.rank != rank_.rank) find(fault);
  }
  say("has ended");
}

void ScheduleRank::check(Flight& flight) {
  say(concat("waits for the end of call ", flight.index));
  const Error* first = nullptr;
  std::vector<std::shared_ptr<Completion>> all = flight.pending;
  for (const StagedOperation& each : flight.operations) {
    all.insert(all.end(), each.chunks.begin(), each.chunks.end());
  }
  for (const auto& each : all) {
    await(*each);
    if (each->error() && first == nullptr) first = &*each->error();
  }
  if (first != nullptr) return check_error(concat("call ", flight.index), *first);
  if (!flight.begun) return;
  const bool is_on_host = flight.call->on_host;
  if (!is_on_host && (device_failed_ || flight.result == nullptr)) return;
  const Group& group = *members_[flight.call->group].group;
  const auto& expected = expected_[flight.index];
  if (!has_result(*flight.call, group.rank()) || expected.empty()) return;
  const std::byte* found = flight.result;
  if (is_on_host) {
    found = flight.memory->output.empty() || flight.call->in_place ? flight.memory->input.data()
                                                                   : flight.memory->output.data();
  }
  const auto differing = std::mismatch(expected.begin(), expected.end(), found).first;
  if (differing == expected.end()) return;
  std::size_t num_wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) num_wrong += expected[i] == found[i] ? 0 : 1;
  find(concat("call ", flight.index, ", ", test::describe(*flight.call), ": ", num_wrong, " of ",
              expected.size(), " bytes are wrong, the first is byte ", differing - expected.begin(),
              ": ", static_cast<int>(found[differing - expected.begin()]), " instead of ",
              static_cast<int>(*differing)));
}

/// A failure must be the one of the schedule, and other ranks must be told who has failed or left.
void ScheduleRank::check_error(const std::string& where, const Error& error) {
  const Trouble& trouble = schedule_.trouble;
  const std::string text = error.what();
  if (trouble.kind == Trouble::Kind::kNone) return find(concat(where, ": ", text));
  // A rank that leaves because of an error has told it before; the rest ends because it leaves.
  if (trouble.rank != rank_.rank && !must_leave_ && text.find("rank ") == std::string::npos) {
    find(concat(where, " names no rank: ", text));
  }
}

void ScheduleRank::note_failure(const Error& error) {
  const Trouble& trouble = schedule_.trouble;
  const bool is_ours = trouble.rank == rank_.rank;
  const bool of_device =
      is_ours && (trouble.kind == Trouble::Kind::kCall || trouble.kind == Trouble::Kind::kCommand);
  const bool is_of_group =
      trouble.kind == Trouble::Kind::kAbort || trouble.kind == Trouble::Kind::kClose;
  device_failed_ = device_failed_ || of_device;
  if (!of_device) check_error(at_, error);
  // An error ends a script, unless only one of its groups was aborted.
  must_leave_ = must_leave_ || !is_of_group;
  has_ended_ = has_ended_ || must_leave_;
}

void ScheduleRank::find(const std::string& what) {
  const std::scoped_lock lock(mutex_);
  findings_ += concat("rank ", rank_.rank, ": ", what, "\n");
}

void ScheduleRank::say(std::string what) {
  const std::scoped_lock lock(mutex_);
  at_ = std::move(what);
}

void ScheduleRank::close() {
  say("closes its groups");
  close_groups();
  for (const auto& each : submitted_) {
    if (!each->done()) find("an operation has not ended after its group was closed");
  }
}

std::string ScheduleRank::findings() {
  const std::scoped_lock lock(mutex_);
  return findings_;
}

std::string ScheduleRank::describe() {
  const std::scoped_lock lock(mutex_);
  std::string text = concat("rank ", rank_.rank, " ", at_, "\n", device_.describe_queues());
  for (const auto& each : submitted_) {
    if (each->done()) continue;
    return text + "in flight: " + rank_.engine->state_of(*each) + "\n";
  }
  return text;
}

}  // namespace slipstream::test
