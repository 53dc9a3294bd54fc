#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "staged/staged_group.h"
#include "test/engine_world.h"
#include "test/schedule.h"
#include "test/stream_blocks.h"

namespace slipstream::test {

/// Plays a schedule on one rank: first all calls on memory of the CPU, one after another, for the
/// expected results; then the program on a fake device; then it compares.
///
/// Tensors of the device are used as PyTorch uses them: a stream makes the input, the collective
/// follows in stream order, and a stream that has waited for the result may reuse the memory at
/// once, although neither device nor network have started.
class ScheduleRank {
 public:
  ScheduleRank(EngineRank& rank, const Schedule& schedule, EngineWorld& world);
  ScheduleRank(const ScheduleRank&) = delete;
  ScheduleRank& operator=(const ScheduleRank&) = delete;
  ~ScheduleRank() = default;

  /// Computes the expected results. All ranks must have done so before one of them calls run().
  void expect();
  void run();
  /// Closes the groups, which must end every operation.
  void close();
  /// What was wrong: one line for each. Empty after a right run.
  [[nodiscard]] std::string findings();
  /// What the rank does now, for a run that hangs. Any thread may call it.
  [[nodiscard]] std::string describe();

 private:
  struct HostMemory {
    std::vector<std::byte> input, output;
    std::vector<float> residual;
  };
  /// A call of this rank.
  struct Flight {
    const ScheduledCall* call = nullptr;
    std::size_t index = 0;
    std::size_t settled_at = 0;  ///< number of the call after which this rank waits for it
    bool begun = false, settled = false;
    std::vector<StagedOperation> operations{};           ///< on the device
    std::vector<std::shared_ptr<Completion>> pending{};  ///< on the CPU
    std::unique_ptr<HostMemory> memory{};
    std::vector<StreamBlock> blocks{};
    EventHandle made{};  ///< after the input was made
    DeviceAddress output = 0;
    const std::byte* result = nullptr;  ///< where the device copies it for the comparison
  };
  struct Member {
    std::shared_ptr<Group> group, reference;  ///< null if this rank is no member
    std::unique_ptr<StagedGroup> staged;
    bool failed = false;
  };

  void play(std::size_t index);
  void make_trouble(const Trouble& trouble);
  void begin(std::size_t index, Member& member);
  void begin_on_host(Flight& flight, const std::shared_ptr<Group>& group);
  void begin_on_device(Flight& flight, Member& member);
  void upload_own_part(const Flight& flight, const Group& group, std::size_t stream);
  void exchange(const Flight& flight, const Group& group,
                const std::function<void(const Request&)>& submit);
  static Request request_of(const ScheduledCall& call, const Group& group, HostMemory& memory);

  // schedule_checks.cc
  void settle(Flight& flight);
  void wait_on_device(Flight& flight);
  void await(Completion& completion);
  void finish();
  void check(Flight& flight);
  void check_error(const std::string& where, const Error& error);
  void note_failure(const Error& error);
  void leave();
  void close_groups();
  void find(const std::string& what);
  void say(std::string what);
  [[nodiscard]] std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  EngineRank& rank_;
  const Schedule& schedule_;
  EngineWorld& world_;
  std::mt19937_64 random_;
  FakeDevice device_;
  std::optional<StreamBlocks> blocks_;
  std::vector<Member> members_;                   ///< by number of the group
  std::vector<std::vector<std::byte>> expected_;  ///< by number of the call
  std::list<Flight> flights_;
  bool device_failed_ = false, must_leave_ = false;
  bool has_ended_ = false;  ///< whether it makes no more calls

  std::mutex mutex_;  ///< guards everything below
  std::string at_ = "has not begun", findings_;
  std::vector<std::shared_ptr<Completion>> submitted_;
};

}  // namespace slipstream::test
