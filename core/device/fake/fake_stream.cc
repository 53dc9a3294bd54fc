#include "device/fake/fake_stream.h"

#include <algorithm>
#include <limits>

#include "gate/gate.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

using Kind = FakeCommand::Kind;

bool is_held(const FakeQueues& queues, const FakeCommand& command) {
  if (command.kind == Kind::kWaitWord) {
    return !reached(command.word->load(std::memory_order_acquire), command.value);
  }
  return command.kind == Kind::kWaitEvent &&
         queues.events[command.event].pending.contains(command.version);
}

/// Whether `command` ends the wait when it is executed.
bool ends(const FakeCommand& command, const FakeCommand& wait) {
  if (wait.kind == Kind::kWaitWord) {
    return command.kind == Kind::kWriteWord && command.word == wait.word &&
           reached(command.value, wait.value);
  }
  return command.kind == Kind::kRecord && command.event == wait.event &&
         command.version == wait.version;
}

std::uint64_t oldest(const FakeQueues& queues) {
  std::uint64_t order = std::numeric_limits<std::uint64_t>::max();
  for (const FakeStream& stream : queues.streams) {
    if (!stream.queue.empty()) order = std::min(order, stream.queue.front().order);
  }
  return order;
}

/// The streams with a command that ends the wait.
std::vector<std::size_t> ending_streams(const FakeQueues& queues, const FakeCommand& wait) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < queues.streams.size(); ++i) {
    const auto& queue = queues.streams[i].queue;
    if (std::ranges::any_of(queue, [&](const FakeCommand& each) { return ends(each, wait); })) {
      found.push_back(i);
    }
  }
  return found;
}

/// Whether the first command of the stream will be executed, if the streams in `progressing` make
/// progress.
bool can_progress(const FakeQueues& queues, const std::vector<bool>& progressing,
                  std::size_t index) {
  const FakeStream& stream = queues.streams[index];
  if (stream.queue.empty()) return true;
  const FakeCommand& head = stream.queue.front();
  const auto is_progressing = [&](std::size_t other) { return progressing[other]; };
  if (const std::uint64_t first = oldest(queues); queues.one_queue && head.order != first) {
    for (std::size_t i = 0; i < queues.streams.size(); ++i) {
      const auto& queue = queues.streams[i].queue;
      if (!queue.empty() && queue.front().order == first) return progressing[i];
    }
  }
  if (!is_held(queues, head)) return true;
  const std::vector<std::size_t> others = ending_streams(queues, head);
  // The CPU may write a word that no stream writes.
  return others.empty() || std::ranges::any_of(others, is_progressing);
}

std::string describe(const FakeQueues& queues, std::size_t index) {
  const auto& queue = queues.streams[index].queue;
  const FakeCommand& head = queue.front();
  std::string what = "executes a command";
  if (head.kind == Kind::kWaitWord) {
    what = concat("waits for word ", head.device, " to be ", head.value, " (it is ",
                  head.word->load(std::memory_order_relaxed), ")");
  } else if (head.kind == Kind::kWaitEvent) {
    what = concat("waits for event ", head.event);
  }
  std::string by;
  for (const std::size_t other : ending_streams(queues, head))
    by += concat(", ended by stream ", other);
  return concat("stream ", index, " ", what, by, "; commands behind: ", queue.size() - 1, "\n");
}

}  // namespace

bool can_run(const FakeQueues& queues, const FakeStream& stream) {
  if (stream.queue.empty()) return false;
  const FakeCommand& head = stream.queue.front();
  return !is_held(queues, head) && (!queues.one_queue || head.order == oldest(queues));
}

bool waits_for_word(const FakeQueues& queues) {
  return std::ranges::any_of(queues.streams, [&](const FakeStream& stream) {
    return !stream.queue.empty() && stream.queue.front().kind == Kind::kWaitWord &&
           is_held(queues, stream.queue.front());
  });
}

bool ends_earlier_wait(const FakeQueues& queues, const FakeCommand& write) {
  const auto is_ended = [&](const FakeCommand& each) {
    return each.kind == Kind::kWaitWord && ends(write, each) && is_held(queues, each) &&
           ending_streams(queues, each).empty();
  };
  return std::ranges::any_of(queues.streams, [&](const FakeStream& stream) {
    return std::ranges::any_of(stream.queue, is_ended);
  });
}

std::optional<std::string> find_circle(const FakeQueues& queues) {
  std::vector<bool> progressing(queues.streams.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < progressing.size(); ++i) {
      if (progressing[i] || !can_progress(queues, progressing, i)) continue;
      progressing[i] = changed = true;
    }
  }
  std::string circle;
  for (std::size_t i = 0; i < progressing.size(); ++i) {
    if (!progressing[i]) circle += describe(queues, i);
  }
  if (circle.empty()) return std::nullopt;
  return circle;
}

std::string describe(const FakeQueues& queues) {
  std::string all;
  for (std::size_t i = 0; i < queues.streams.size(); ++i) {
    if (!queues.streams[i].queue.empty()) all += describe(queues, i);
  }
  return all;
}

}  // namespace slipstream
