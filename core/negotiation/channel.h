#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "slipstream/negotiation.h"

namespace slipstream {

/// The collectives of a negotiation, in a separate group of the engine. All ranks must call the
/// same functions. They block, and throw the error with which the engine ends them.
class Channel {
 public:
  Channel(Engine& engine, const Group& group);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Replaces each word by the AND of the words that the ranks passed: log2 n exchanges, within the
  /// hosts first.
  void and_words(std::vector<std::uint64_t>& words);
  /// The texts of all ranks, by rank in the negotiating group.
  std::vector<std::string> gather(const std::string& own);

  [[nodiscard]] Engine& engine() const { return engine_; }
  [[nodiscard]] Group& group() const { return *group_; }
  /// Properties of the negotiating group, whose ranks appear in messages.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return group_->size(); }
  /// The number of collectives begun here. Any thread may call it.
  [[nodiscard]] std::uint64_t begun() const { return begun_.load(); }
  [[nodiscard]] std::uint64_t messages() const { return messages_; }
  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }
  /// Ends the collective in flight and all later ones. Any thread may call it.
  void close() { engine_.close_group(*group_); }

 private:
  /// The data of all ranks, with `counts` bytes each, concatenated in the order of our group.
  std::vector<char> spread(std::string_view own, const std::vector<std::uint64_t>& counts);
  void run(Request request);
  void count(const Request& request);

  Engine& engine_;
  const std::string name_;
  const std::uint32_t rank_;
  std::vector<std::uint32_t> ranks_;  // ranks in the negotiating group, by rank in ours
  std::shared_ptr<Group> group_;
  std::atomic<std::uint64_t> begun_{0};
  std::uint64_t messages_ = 0, payload_bytes_ = 0;
};

}  // namespace slipstream
