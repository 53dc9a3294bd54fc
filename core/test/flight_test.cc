#include "engine/flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "engine_world.h"

// The last operations and events of engines, which flight records contain.
namespace slipstream::test {
namespace {

Request allreduce(std::vector<float>& data, std::string name) {
  Request request;
  request.collective = Collective::kAllreduce;
  request.input = request.output = data.data();
  request.dtype = DType::kFloat32;
  request.count = data.size();
  request.name = std::move(name);
  return request;
}

std::vector<std::string> texts_of(const FlightSnapshot& snapshot, FlightEvent::Kind kind) {
  std::vector<std::string> texts;
  for (const FlightEvent& event : snapshot.events) {
    if (event.kind == kind) texts.push_back(event.text);
  }
  return texts;
}

/// Waits until `rank` has raised an alarm.
void await_alarm(EngineRank& rank) {
  const TimePoint limit = Clock::now() + kPatience;
  while (rank.engine->alarms() == 0 && Clock::now() < limit) std::this_thread::yield();
  ASSERT_GT(rank.engine->alarms(), 0U);
}

TEST(Flight, KeepsTheLastOperationsInOrder) {
  Flight flight;
  EXPECT_TRUE(flight.operations().empty());
  for (std::uint64_t i = 0; i < Flight::kOperations + 3; ++i) flight.next_operation().sequence = i;
  const auto operations = flight.operations();
  ASSERT_EQ(operations.size(), Flight::kOperations);
  EXPECT_EQ(flight.ended_operations(), Flight::kOperations + 3);
  for (std::uint64_t i = 0; i < Flight::kOperations; ++i) EXPECT_EQ(operations[i].sequence, i + 3);
}

TEST(Flight, KeepsTheLastEvents) {
  Flight flight;
  for (std::uint64_t i = 0; i < Flight::kEvents + 1; ++i) {
    flight.note({.kind = FlightEvent::Kind::kStalled, .group = "world", .sequence = i});
  }
  EXPECT_EQ(flight.events().size(), Flight::kEvents);
  EXPECT_FALSE(flight.has(FlightEvent::Kind::kStalled, "world", 0));
  EXPECT_TRUE(flight.has(FlightEvent::Kind::kStalled, "world", 1));
  EXPECT_FALSE(flight.has(FlightEvent::Kind::kStalled, "another", 1));
  EXPECT_FALSE(flight.has(FlightEvent::Kind::kAwaited, "world", 1));
}

TEST(Flight, ShowsOperationsThatHaveEndedAndThatWait) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    std::vector<float> data(8, 1.0F);
    self.run(allreduce(data, "first"));
  });
  std::vector<float> data(8, 1.0F);
  const auto pending = world[0].engine->submit(world[0].world, allreduce(data, "second"));
  const FlightSnapshot snapshot = world[0].engine->flight();
  EXPECT_EQ(snapshot.ended_operations, 1U);
  ASSERT_EQ(snapshot.operations.size(), 2U);
  const OperationRecord& first = snapshot.operations[0];
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.state, OperationState::kDone);
  EXPECT_EQ(first.bytes, 32U);
  EXPECT_LE(first.submitted, first.started);
  EXPECT_LE(first.started, first.completed);
  const OperationRecord& second = snapshot.operations[1];
  EXPECT_EQ(second.name, "second");
  EXPECT_EQ(second.state, OperationState::kRunning);
  EXPECT_EQ(second.sequence, 1U);
  EXPECT_EQ(second.completed, 0);
  EXPECT_EQ(second.absent, std::vector<std::uint32_t>{1});
  EXPECT_EQ(second.missing, std::vector<std::uint32_t>{1});
  ASSERT_EQ(snapshot.groups.size(), 1U);
  EXPECT_EQ(snapshot.groups[0].submitted, (std::vector<std::uint64_t>{2, 1}));
  ASSERT_EQ(snapshot.peers.size(), 1U);
  EXPECT_EQ(snapshot.peers[0].state, "connected");
  EXPECT_GT(snapshot.peers[0].bytes_sent, 0U);
  EXPECT_GT(snapshot.peers[0].streams_alive, 0U);
  EXPECT_EQ(world[0].engine->alarms(), 0U);
  world[1].run(allreduce(data, "second"));
  world[0].finish(*pending);
}

TEST(Flight, AnAbortIsAnEventOfBothAndTheOtherKnowsFromWhom) {
  EngineWorld world(2);
  world[0].engine->abort_group(*world[0].world, "enough");
  for (const std::uint32_t rank : {0U, 1U}) await_alarm(world[rank]);
  const FlightSnapshot mine = world[0].engine->flight(), other = world[1].engine->flight();
  EXPECT_TRUE(texts_of(mine, FlightEvent::Kind::kAborted).empty());
  ASSERT_EQ(texts_of(mine, FlightEvent::Kind::kFailed).size(), 1U);
  ASSERT_EQ(texts_of(other, FlightEvent::Kind::kAborted).size(), 1U);
  EXPECT_EQ(other.events[0].rank, 0U);
  EXPECT_EQ(other.events[0].text, "rank 0 aborted group 'world': enough");
  EXPECT_NE(other.groups[0].failure.find("enough"), std::string::npos);
}

TEST(Flight, AStallIsAnEventOfTheRankThatWaitsAndOfTheRankThatIsAwaited) {
  EngineOptions options;
  options.stall_after = 50ms;
  EngineWorld world(3, FakeOptions{}, options);
  std::vector<std::vector<float>> data(3, std::vector<float>(8, 1.0F));
  const auto zero = world[0].engine->submit(world[0].world, allreduce(data[0], "late"));
  const auto one = world[1].engine->submit(world[1].world, allreduce(data[1], "late"));
  for (const std::uint32_t rank : {0U, 1U, 2U}) await_alarm(world[rank]);
  const auto stalls = texts_of(world[0].engine->flight(), FlightEvent::Kind::kStalled);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_NE(stalls[0].find("has not submitted it"), std::string::npos);
  const auto awaited = texts_of(world[2].engine->flight(), FlightEvent::Kind::kAwaited);
  ASSERT_EQ(awaited.size(), 1U) << "one for each operation, whoever waits";
  EXPECT_NE(awaited[0].find("waits for operation 0 of group 'world'"), std::string::npos);
  world[2].run(allreduce(data[2], "late"));
  world[0].finish(*zero);
  world[1].finish(*one);
}

TEST(Flight, AStalledReceiveTellsTheSender) {
  EngineOptions options;
  options.stall_after = 50ms;
  EngineWorld world(2, FakeOptions{}, options);
  std::vector<float> data(8, 1.0F);
  Request receive = allreduce(data, "");
  receive.collective = Collective::kReceive;
  receive.root = 1;
  const auto pending = world[0].engine->submit(world[0].world, receive);
  await_alarm(world[1]);
  const auto awaited = texts_of(world[1].engine->flight(), FlightEvent::Kind::kAwaited);
  ASSERT_EQ(awaited.size(), 1U);
  EXPECT_NE(awaited[0].find("waits for a message of group 'world'"), std::string::npos);
  Request send = receive;
  send.collective = Collective::kSend;
  send.root = 0;
  std::vector<float> sent(8, 2.0F);
  send.input = send.output = sent.data();
  world[1].run(send);
  world[0].finish(*pending);
  EXPECT_EQ(data, sent);
}

TEST(Flight, AFailedOperationKeepsForWhomItWaited) {
  EngineWorld world(3);
  std::vector<float> data(8, 1.0F);
  const auto pending = world[0].engine->submit(world[0].world, allreduce(data, "failed"));
  world[0].engine->abort_group(*world[0].world, "enough");
  EXPECT_NE(error_of([&] { world[0].finish(*pending); }), "");
  const FlightSnapshot snapshot = world[0].engine->flight();
  ASSERT_EQ(snapshot.operations.size(), 1U);
  EXPECT_EQ(snapshot.operations[0].state, OperationState::kFailed);
  EXPECT_EQ(snapshot.operations[0].absent, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(snapshot.operations[0].error, "rank 0 aborted group 'world': enough");
}

TEST(Flight, CloseRaisesNoAlarm) {
  EngineWorld world(2);
  world.each([](EngineRank& self) {
    std::vector<float> data(8, 1.0F);
    self.run(allreduce(data, "only"));
    self.engine->close();
  });
  for (const std::uint32_t rank : {0U, 1U}) EXPECT_EQ(world[rank].engine->alarms(), 0U);
}

}  // namespace
}  // namespace slipstream::test
