#include "device/fake/fake_device.h"

#include <algorithm>
#include <utility>

#include "gate/engine_thread.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

using Kind = FakeCommand::Kind;

std::size_t index_of(StreamHandle handle) { return static_cast<std::size_t>(handle); }
std::size_t index_of(EventHandle handle) { return static_cast<std::size_t>(handle) - 1; }

}  // namespace

FakeDevice::FakeDevice(FakeDeviceOptions options)
    : options_(std::move(options)), memory_(options_.memory_bytes), random_(options_.seed) {
  queues_.one_queue = options_.one_queue;
  add_stream();  // kDefaultStream
}

FakeDevice::~FakeDevice() {
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (FakeStream& stream : queues_.streams) {
    if (stream.thread.joinable()) stream.thread.join();
  }
}

FakeDevice::Lock FakeDevice::enter(const char* call) {
  EngineThread::refuse(call);
  if (options_.before_call) options_.before_call();
  Lock lock(mutex_);
  if (++counts_.calls == options_.failing_call) {
    fail(ErrorKind::kInternal, call, " failed, as call ", counts_.calls, " was told to");
  }
  if (!faults_.empty()) {
    fail(ErrorKind::kInternal, call, ": the device has failed: ", faults_.front());
  }
  return lock;
}

FakeDevice::Lock FakeDevice::enter_to_make(const char* call) {
  Lock lock = enter(call);
  if (waits_for_word(queues_)) ++counts_.made_while_waiting;
  return lock;
}

FakeStream& FakeDevice::stream(const char* call, StreamHandle handle) {
  const std::size_t index = index_of(handle);
  if (index >= queues_.streams.size() || queues_.streams[index].destroyed) {
    fail(ErrorKind::kUsage, call, ": there is no stream ", index);
  }
  return queues_.streams[index];
}

FakeDeviceEvent& FakeDevice::event(const char* call, EventHandle handle) {
  const std::size_t index = index_of(handle);
  if (index >= queues_.events.size() || queues_.events[index].destroyed) {
    fail(ErrorKind::kUsage, call, ": there is no event ", index);
  }
  return queues_.events[index];
}

std::atomic<std::uint32_t>* FakeDevice::word(const char* call, DeviceAddress address) {
  std::byte* bytes = memory_.host_bytes(address, sizeof(std::uint32_t));
  if (bytes == nullptr || address % sizeof(std::uint32_t) != 0) {
    fail(ErrorKind::kUsage, call, ": ", address,
         " is not the device's address of a word of registered host memory");
  }
  return reinterpret_cast<std::atomic<std::uint32_t>*>(bytes);
}

void FakeDevice::check_host(const char* call, const std::byte* memory, std::size_t num_bytes) {
  if (memory_.is_registered(memory, num_bytes)) return;
  fail(ErrorKind::kUsage, call, ": ", num_bytes, " bytes of host memory are not registered");
}

// ---- memory, streams, events -------------------------------------------------------------------

DeviceAddress FakeDevice::allocate(std::size_t num_bytes) {
  const Lock lock = enter_to_make("allocate");
  return memory_.allocate(num_bytes);
}

void FakeDevice::free(DeviceAddress memory) {
  Lock lock = enter("free");
  block_until(lock, "free", [&] { return !waits_for_word(queues_); });
  memory_.free(memory);
}

DeviceAddress FakeDevice::register_host(std::span<std::byte> memory) {
  const Lock lock = enter_to_make("register_host");
  return memory_.register_host(memory);
}

void FakeDevice::unregister_host(std::byte* memory) {
  Lock lock = enter("unregister_host");
  block_until(lock, "unregister_host", [&] { return !waits_for_word(queues_); });
  memory_.unregister_host(memory);
}

StreamHandle FakeDevice::make_stream() {
  const Lock lock = enter_to_make("make_stream");
  return add_stream();
}

StreamHandle FakeDevice::add_stream() {
  const StreamHandle handle{queues_.streams.size()};
  FakeStream& made = queues_.streams.emplace_back();
  made.random.seed(options_.seed * 1000 + index_of(handle));
  if (options_.threads) made.thread = std::thread([this, &made] { run_stream(made); });
  return handle;
}

void FakeDevice::destroy(StreamHandle handle) {
  const Lock lock = enter("destroy");
  stream("destroy", handle).destroyed = true;  // its commands are still executed
}

EventHandle FakeDevice::make_event() {
  const Lock lock = enter_to_make("make_event");
  queues_.events.emplace_back();
  return EventHandle{queues_.events.size()};
}

void FakeDevice::destroy(EventHandle handle) {
  const Lock lock = enter("destroy");
  event("destroy", handle).destroyed = true;
}

// ---- commands --------------------------------------------------------------------------

void FakeDevice::enqueue(Lock& lock, const char* call, StreamHandle handle, FakeCommand command) {
  FakeStream& target = stream(call, handle);
  block_until(lock, call, [&] { return target.queue.size() < options_.queue_depth; });
  command.order = ++num_commands_;
  target.queue.push_back(std::move(command));
  counts_.deepest_queue = std::max(counts_.deepest_queue, target.queue.size());
  changed_.notify_all();
}

void FakeDevice::copy_to_host(StreamHandle stream, std::byte* target, DeviceAddress source,
                              std::size_t num_bytes) {
  Lock lock = enter("copy_to_host");
  check_host("copy_to_host", target, num_bytes);
  counts_.bytes_to_host += num_bytes;
  enqueue(lock, "copy_to_host", stream,
          {.kind = Kind::kCopyToHost, .host = target, .device = source, .num_bytes = num_bytes});
}

void FakeDevice::copy_to_device(StreamHandle stream, DeviceAddress target, const std::byte* source,
                                std::size_t num_bytes) {
  Lock lock = enter("copy_to_device");
  check_host("copy_to_device", source, num_bytes);
  counts_.bytes_to_device += num_bytes;
  enqueue(lock, "copy_to_device", stream,
          {.kind = Kind::kCopyToDevice,
           .host = const_cast<std::byte*>(source),
           .device = target,
           .num_bytes = num_bytes});
}

void FakeDevice::write_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) {
  Lock lock = enter("write_word");
  const FakeCommand command{.kind = Kind::kWriteWord,
                            .device = word,
                            .word = this->word("write_word", word),
                            .value = value};
  if (!options_.allow_late_writes && ends_earlier_wait(queues_, command)) {
    fail(ErrorKind::kUsage,
         "write_word: a stream waits for this word already. Streams may share "
         "a queue, so what ends a wait must be enqueued before it:\n",
         slipstream::describe(queues_));
  }
  enqueue(lock, "write_word", stream, command);
}

void FakeDevice::wait_word(StreamHandle stream, DeviceAddress word, std::uint32_t value) {
  Lock lock = enter("wait_word");
  enqueue(lock, "wait_word", stream,
          {.kind = Kind::kWaitWord,
           .device = word,
           .word = this->word("wait_word", word),
           .value = value});
}

void FakeDevice::record(StreamHandle stream, EventHandle event) {
  Lock lock = enter("record");
  FakeDeviceEvent& recorded = this->event("record", event);
  const std::uint64_t version = ++recorded.num_recorded;
  recorded.pending.insert(version);
  enqueue(lock, "record", stream,
          {.kind = Kind::kRecord, .event = index_of(event), .version = version});
}

void FakeDevice::wait_event(StreamHandle stream, EventHandle event) {
  Lock lock = enter("wait_event");
  const std::uint64_t version = this->event("wait_event", event).num_recorded;
  enqueue(lock, "wait_event", stream,
          {.kind = Kind::kWaitEvent, .event = index_of(event), .version = version});
}

bool FakeDevice::is_done(EventHandle handle) {
  const Lock lock = enter("is_done");
  const FakeDeviceEvent& found = event("is_done", handle);
  return !found.pending.contains(found.num_recorded);
}

void FakeDevice::synchronize(StreamHandle handle) {
  Lock lock = enter("synchronize");
  const FakeStream& awaited = stream("synchronize", handle);
  block_until(lock, "synchronize", [&] { return awaited.queue.empty(); });
}

void FakeDevice::launch(StreamHandle stream, std::function<void()> kernel) {
  Lock lock = enter("launch");
  enqueue(lock, "launch", stream, {.kind = Kind::kKernel, .kernel = std::move(kernel)});
}

void FakeDevice::synchronize_all() {
  Lock lock = enter("synchronize_all");
  block_until(lock, "synchronize_all", [&] {
    return std::ranges::all_of(queues_.streams,
                               [](const auto& each) { return each.queue.empty(); });
  });
}

void FakeDevice::block_until(Lock& lock, const char* call, const std::function<bool()>& is_over) {
  const TimePoint deadline = Clock::now() + options_.patience;
  while (!is_over()) {
    bool goes_on = true;
    if (options_.threads) {
      changed_.wait_for(lock, 1ms);
      goes_on = Clock::now() < deadline;
    } else {
      goes_on = step_locked(lock);
    }
    if (!faults_.empty()) {
      fail(ErrorKind::kInternal, call, ": the device has failed: ", faults_.front());
    }
    if (goes_on || is_over()) continue;
    fail(ErrorKind::kInternal, call, " would never return:\n", slipstream::describe(queues_));
  }
}

// ---- for tests ----------------------------------------------------------------------------

std::vector<std::string> FakeDevice::faults() const {
  const Lock lock(mutex_);
  return faults_;
}

FakeDeviceCounts FakeDevice::counts() const {
  const Lock lock(mutex_);
  return counts_;
}

std::byte* FakeDevice::kernel_bytes(DeviceAddress address, std::size_t num_bytes) const {
  const Lock lock(mutex_);
  return memory_.device_bytes(address, num_bytes);
}

std::string FakeDevice::describe_queues() const {
  const Lock lock(mutex_);
  return slipstream::describe(queues_);
}

}  // namespace slipstream
