#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slipstream/negotiation.h"
#include "test/engine_world.h"

namespace slipstream::test {

inline std::shared_ptr<const TensorSpec> tensor(std::string name,
                                                std::vector<std::int64_t> shape = {256}) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.shape = std::move(shape);
  return std::make_shared<const TensorSpec>(std::move(spec));
}

/// One rank's negotiator, with its outcomes so far.
class NegotiatingRank {
 public:
  NegotiatingRank(EngineRank& rank, const NegotiationOptions& options)
      : negotiator(*rank.engine, rank.world, options,
                   Log([&rank](LogLevel, const std::string& text) {
                     const std::scoped_lock lock(rank.log_mutex);
                     rank.log.push_back(text);
                   })) {}

  void submit(const std::shared_ptr<const TensorSpec>& spec, std::uint64_t token = 0) {
    const Submission one{spec, token};
    negotiator.submit({&one, 1});
  }
  void submit(const std::string& name, std::uint64_t token = 0) { submit(tensor(name), token); }
  void submit_fused(const std::vector<std::string>& names) {
    std::vector<Submission> unit;
    for (const std::string& name : names) unit.push_back({tensor(name), 0});
    negotiator.submit(unit);
  }

  /// Takes the next outcome; returns false if none comes in time.
  bool take(Nanoseconds patience = kPatience) {
    const auto outcome = negotiator.next(patience);
    if (!outcome) return false;
    for (const AgreedTensor& each : outcome->ready) {
      ready.push_back(each.tensor->name);
      agreed.push_back(each);
      some_joined.push_back(outcome->some_joined);
      rounds.push_back(outcome->round);
    }
    for (const FailedTensor& each : outcome->failed) {
      failed.insert_or_assign(each.tensor->name, each.error.what());
    }
    if (outcome->last_joined) last_joined = outcome->last_joined;
    return true;
  }
  void take_ready(std::size_t count) {
    while (ready.size() < count) {
      if (!take()) throw Error(ErrorKind::kInternal, concat(ready.size(), " of ", count, " ready"));
    }
  }
  /// The error of a tensor that failed.
  std::string take_failure(const std::string& name) {
    while (failed.count(name) == 0) {
      if (!take()) throw Error(ErrorKind::kInternal, concat(name, " has not failed"));
    }
    return failed[name];
  }

  Negotiator negotiator;
  std::vector<std::string> ready;     ///< names
  std::vector<AgreedTensor> agreed;   ///< one for each of `ready`
  std::vector<bool> some_joined;      ///< one for each of `ready`
  std::vector<std::uint64_t> rounds;  ///< one for each of `ready`
  std::map<std::string, std::string> failed;
  std::optional<std::uint32_t> last_joined;
};

/// Ranks as threads, each with an engine and a negotiator.
class NegotiationWorld {
 public:
  explicit NegotiationWorld(std::uint32_t size, NegotiationOptions options = {},
                            const FakeOptions& network = {}, std::vector<Place> places = {},
                            const EngineOptions& engine = {})
      : world(size, network, engine, std::move(places)), ranks_(size) {
    world.each([&](EngineRank& self) {
      ranks_[self.rank] = std::make_unique<NegotiatingRank>(self, options);
    });
  }

  NegotiatingRank& operator[](std::uint32_t rank) { return *ranks_[rank]; }
  void each(const std::function<void(std::uint32_t, NegotiatingRank&)>& body) {
    world.each([&](EngineRank& self) { body(self.rank, *ranks_[self.rank]); });
  }
  /// Leaves like a rank that ends: closes the negotiator, and then the engine says goodbye.
  void leave(std::uint32_t rank) {
    ranks_[rank]->negotiator.close();
    world[rank].engine->close();
  }

  EngineWorld world;

 private:
  std::vector<std::unique_ptr<NegotiatingRank>> ranks_;
};

}  // namespace slipstream::test
