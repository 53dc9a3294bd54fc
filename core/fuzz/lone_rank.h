#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/failures.h"
#include "engine/group.h"
#include "engine/messages.h"
#include "engine/operations.h"
#include "engine/receiver.h"
#include "engine/stream_control.h"
#include "engine/world.h"
#include "fuzz/input.h"

namespace slipstream::fuzz {

/// A link that keeps one frame of each stream half written, as TCP does, and reads its payload
/// later.
class HoldingLink final : public Link {
 public:
  static constexpr std::uint32_t kStreams = 3;

  HoldingLink(Input& input, bool copies) : input_(input), copies_(copies) {}

  [[nodiscard]] std::uint32_t num_streams() const override { return kStreams; }
  [[nodiscard]] bool alive(std::uint32_t stream) const override { return streams_[stream].alive; }
  [[nodiscard]] bool ready(std::uint32_t stream) const override {
    return alive(stream) && !streams_[stream].holds;
  }
  [[nodiscard]] bool holds(std::uint32_t stream) const override { return streams_[stream].holds; }
  bool send(std::uint32_t stream, const Frame& frame, std::span<const std::byte> payload) override;
  [[nodiscard]] bool copies_payload() const override { return copies_; }
  void forget(std::span<const std::byte> memory) override;
  [[nodiscard]] bool reconnects() const override { return true; }
  void give_up() override;
  [[nodiscard]] std::string describe() const override { return "fuzz"; }

  /// Writes the rest of held frames.
  void drain();
  /// Drops the stream's held frame.
  void lose(std::uint32_t stream) { streams_[stream] = {.alive = false}; }
  void open(std::uint32_t stream) { streams_[stream].alive = true; }
  [[nodiscard]] std::uint64_t sum() const { return sum_; }

 private:
  struct Stream {
    bool alive = true;
    bool holds = false;
    std::span<const std::byte> payload{};
    std::vector<std::byte> owned{};
  };

  void read(std::span<const std::byte> bytes);

  Input& input_;
  const bool copies_;
  std::vector<Stream> streams_{kStreams};
  std::uint64_t sum_ = 0;  // of the bytes written, so that they are read
};

/// Rank 1 of three, with all parts of its engine except for the threads. Operations have memory of
/// their exact size, which is freed as soon as they are done.
class LoneRank {
 public:
  static constexpr std::uint32_t kSelf = 1, kSize = 3;

  explicit LoneRank(Input& input);
  /// Ends all operations, since operations and their group refer to one another.
  ~LoneRank();
  LoneRank(const LoneRank&) = delete;
  LoneRank& operator=(const LoneRank&) = delete;

  /// Submits an operation that the input chooses, as Engine::submit() and start() do.
  void submit();
  /// Delivers a frame that the input chooses.
  void deliver();
  /// Lets streams write, die or live again, or time pass.
  void disturb();
  /// Sends what can be sent, and frees the memory of operations that are done.
  void turn();
  [[nodiscard]] std::uint64_t sum() const;

 private:
  struct Owned {
    std::shared_ptr<Operation> operation;
    std::vector<std::byte> input, output;
  };

  Request choose_request();
  void start(const std::shared_ptr<Operation>& operation);
  std::uint32_t choose_peer() { return input_.coin() ? 0 : 2; }
  Frame choose_frame(std::uint32_t peer);
  Frame fitting_frame(std::uint32_t peer);

  Input& input_;
  World world_;
  Operations operations_;
  Failures failures_;
  Messages messages_;
  StreamControl streams_;
  Receiver receiver_;
  std::vector<std::unique_ptr<HoldingLink>> links_;
  std::shared_ptr<Group> group_;
  std::list<Owned> owned_;
  std::uint64_t next_control_[kSize] = {1, 1, 1};
  std::uint64_t next_order_ = 0;
};

}  // namespace slipstream::fuzz
