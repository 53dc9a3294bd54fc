#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>

#include "device/fake/fake_device.h"
#include "slipstream/error.h"

// How a fake device executes commands.
namespace slipstream {
namespace {

using Kind = FakeCommand::Kind;

/// The interval at which a stream reads a word that it waits for.
constexpr auto kPollInterval = 20us;

}  // namespace

bool FakeDevice::step() {
  Lock lock(mutex_);
  return step_locked(lock);
}

bool FakeDevice::step_locked(Lock& lock) {
  std::vector<FakeStream*> able;
  for (FakeStream& stream : queues_.streams) {
    if (faults_.empty() && can_run(queues_, stream)) able.push_back(&stream);
  }
  if (able.empty()) {
    look_for_circle();
    return false;
  }
  execute(lock, *able[random_() % able.size()]);
  return true;
}

void FakeDevice::execute(Lock& lock, FakeStream& stream) {
  if (++num_executed_ == options_.failing_command) {
    report(concat("command ", num_executed_, " failed, as it was told to"));
    return;
  }
  FakeCommand& command = stream.queue.front();
  switch (command.kind) {
    case Kind::kCopyToHost:
    case Kind::kCopyToDevice:
      copy(lock, command);
      if (command.num_copied < command.num_bytes) return;
      break;
    case Kind::kWriteWord:
      command.word->store(command.value, std::memory_order_release);
      break;
    case Kind::kRecord:
      queues_.events[command.event].pending.erase(command.version);
      break;
    case Kind::kKernel:
      run_kernel(lock, command);
      break;
    case Kind::kWaitWord:
    case Kind::kWaitEvent:
      break;
  }
  stream.queue.pop_front();
  changed_.notify_all();
}

void FakeDevice::copy(Lock& lock, FakeCommand& command) {
  const std::size_t begin = command.num_copied;
  const std::size_t num_bytes =
      begin == 0 ? (command.num_bytes + 1) / 2 : command.num_bytes - begin;
  std::byte* device = memory_.device_bytes(command.device + begin, num_bytes);
  command.num_copied = begin + num_bytes;
  if (device == nullptr || !memory_.is_registered(command.host + begin, num_bytes)) {
    report(concat("a copy of ", command.num_bytes, " bytes, device memory ", command.device,
                  ": not all of it is allocated, or the host's memory is not registered any more"));
    return;
  }
  std::byte* host = command.host + begin;
  const bool to_host = command.kind == Kind::kCopyToHost;
  const TimePoint begin_time = Clock::now();
  lock.unlock();
  {
    const std::scoped_lock copying(copying_);
    std::memcpy(to_host ? host : device, to_host ? device : host, num_bytes);
  }
  lock.lock();
  occupy_copy_engine(lock, command.kind, num_bytes, begin_time);
}

void FakeDevice::occupy_copy_engine(Lock& lock, Kind direction, std::size_t num_bytes,
                                    TimePoint begin) {
  const bool to_host = direction == Kind::kCopyToHost;
  const double rate =
      to_host ? options_.to_host_bytes_per_second : options_.to_device_bytes_per_second;
  if (rate <= 0) return;
  TimePoint& free = to_host ? to_host_free_ : to_device_free_;
  const std::chrono::duration<double> length(static_cast<double>(num_bytes) / rate);
  free = std::max(free, begin) + std::chrono::duration_cast<Nanoseconds>(length);
  const TimePoint end = free;
  lock.unlock();
  std::this_thread::sleep_until(end);
  lock.lock();
}

void FakeDevice::run_kernel(Lock& lock, FakeCommand& command) {
  std::string fault;
  lock.unlock();
  try {
    command.kernel();
  } catch (const std::exception& error) {
    fault = error.what();
  }
  lock.lock();
  if (!fault.empty()) report(concat("a kernel failed: ", fault));
}

void FakeDevice::report(const std::string& fault) {
  faults_.push_back(fault);
  changed_.notify_all();
}

void FakeDevice::look_for_circle() {
  if (!faults_.empty()) return;
  if (const auto circle = find_circle(queues_)) {
    report(concat("streams wait in a circle:\n", *circle));
  }
}

void FakeDevice::run_stream(FakeStream& stream) {
  Lock lock(mutex_);
  while (!closing_) {
    if (!faults_.empty() || stream.queue.empty()) {
      changed_.wait(lock);
    } else if (!can_run(queues_, stream)) {
      look_for_circle();
      if (stream.queue.front().kind == Kind::kWaitWord) {
        changed_.wait_for(lock, kPollInterval);  // the CPU writes words without a notice
      } else {
        changed_.wait(lock);
      }
    } else {
      delay(lock, stream);
      execute(lock, stream);
    }
  }
}

void FakeDevice::delay(Lock& lock, FakeStream& stream) {
  if (options_.longest_delay.count() <= 0) return;
  const auto most = static_cast<std::uint64_t>(options_.longest_delay.count());
  const Nanoseconds length(stream.random() % most);
  lock.unlock();
  std::this_thread::sleep_for(length);
  lock.lock();
}

}  // namespace slipstream
