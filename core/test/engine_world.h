#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/doorbell.h"
#include "engine/engine.h"
#include "test/transport_world.h"
#include "transport/fake/fake_network.h"
#include "transport/fake/fake_transport.h"

namespace slipstream::test {

/// One rank of a world of engines in this process.
struct EngineRank {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  Doorbell doorbell;
  std::unique_ptr<Transport> transport;
  std::mutex log_mutex;
  std::vector<std::string> log;  // guarded by log_mutex
  std::unique_ptr<Engine> engine;
  std::shared_ptr<Group> world;

  /// Submits an operation and waits; throws its error.
  void run(Request request) { run(world, std::move(request)); }
  void run(const std::shared_ptr<Group>& group, Request request) {
    request.waits_soon = true;
    finish(*engine->submit(group, std::move(request)));
  }
  void finish(Completion& completion) {
    while (!engine->wait(completion, Clock::now() + 10s)) {
    }
    if (completion.error()) throw Error(*completion.error());
  }
  [[nodiscard]] std::vector<std::string> logged() {
    const std::scoped_lock lock(log_mutex);
    return log;
  }
  /// Waits until a line with the text was logged, and returns the first one.
  std::string wait_for(const std::string& text) {
    const TimePoint limit = Clock::now() + kPatience;
    while (Clock::now() < limit) {
      for (const std::string& line : logged()) {
        if (line.find(text) != std::string::npos) return line;
      }
      std::this_thread::yield();
    }
    ADD_FAILURE() << "not logged: " << text;
    return "";
  }
};

/// Engines that are connected by a FakeNetwork, or by the transports of a family.
class EngineWorld {
 public:
  /// `places` are the places of the ranks; without them all ranks run on one host.
  explicit EngineWorld(std::uint32_t size, FakeOptions network = {}, EngineOptions engine = {},
                       std::vector<Place> places = {})
      : EngineWorld(size, std::make_shared<FakeNetwork>(size, std::move(network)), engine,
                    std::move(places)) {}

  EngineWorld(std::uint32_t size, const TransportFamily& family, EngineOptions engine = {},
              std::vector<Place> places = {})
      : places_(std::move(places)) {
    add_ranks(size);
    std::vector<Doorbell*> doorbells;
    for (const auto& member : ranks_) doorbells.push_back(&member->doorbell);
    Wires wires = family.make(doorbells);
    shared_ = std::move(wires.shared);
    start(std::move(wires.transports), engine);
  }

  ~EngineWorld() {
    each([](EngineRank& self) { self.engine->close(); });
  }

  /// The network of a world that was created with one.
  FakeNetwork& network() { return *network_; }
  EngineRank& operator[](std::uint32_t rank) { return *ranks_[rank]; }

  /// Runs `body` for all ranks at the same time; throws the first rank's exception.
  void each(const std::function<void(EngineRank&)>& body) {
    std::vector<std::exception_ptr> errors(ranks_.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          body(*ranks_[i]);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

 private:
  EngineWorld(std::uint32_t size, std::shared_ptr<FakeNetwork> network, EngineOptions engine,
              std::vector<Place> places)
      : network_(std::move(network)), places_(std::move(places)) {
    add_ranks(size);
    std::vector<std::unique_ptr<Transport>> transports;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      const auto bell = ranks_[rank]->doorbell.bell();
      transports.push_back(std::make_unique<FakeTransport>(*network_, rank, bell));
    }
    start(std::move(transports), engine);
  }

  void add_ranks(std::uint32_t size) {
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<EngineRank>());
      ranks_.back()->rank = rank;
      ranks_.back()->size = size;
    }
  }

  void start(std::vector<std::unique_ptr<Transport>> transports, EngineOptions options) {
    options.driver.yields = true;
    for (const auto& member : ranks_) {
      EngineRank* const self = member.get();
      self->transport = std::move(transports[self->rank]);
      const Log log([self](LogLevel, const std::string& text) {
        const std::scoped_lock lock(self->log_mutex);
        self->log.push_back(text);
      });
      const Identity identity{self->rank, self->size, 7, {}};
      self->engine = std::make_unique<Engine>(identity, options, self->doorbell, log);
      self->engine->add_transport(*self->transport);
      for (std::uint32_t rank = 0; rank < places_.size(); ++rank) {
        self->engine->place_rank(rank, places_[rank].host, places_[rank]);
      }
    }
    each([](EngineRank& self) {
      self.engine->connect(Clock::now() + 30s);
      std::vector<std::uint32_t> all(self.size);
      for (std::uint32_t i = 0; i < self.size; ++i) all[i] = i;
      self.world = self.engine->make_group("world", all);
    });
  }

  std::shared_ptr<FakeNetwork> network_;
  std::vector<Place> places_;
  std::shared_ptr<void> shared_;
  std::vector<std::unique_ptr<EngineRank>> ranks_;
};

/// The message of the Error that `call` throws; empty if it throws none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace slipstream::test
