#include "test/device_contract.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <thread>

#include "gate/engine_thread.h"

namespace slipstream::test {

bool comes_true(const std::function<bool()>& condition, Nanoseconds limit) {
  const TimePoint deadline = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

void fill_pattern(std::span<std::byte> memory, std::uint32_t seed, std::size_t first_word) {
  for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint32_t)) {
    const std::uint32_t word = pattern_word(seed, first_word + at / sizeof word);
    std::memcpy(memory.data() + at, &word, std::min(sizeof word, memory.size() - at));
  }
}

std::size_t wrong_words(std::span<const std::byte> memory, std::uint32_t seed,
                        std::size_t first_word) {
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint32_t)) {
    const std::uint32_t word = pattern_word(seed, first_word + at / sizeof word);
    const std::size_t num_bytes = std::min(sizeof word, memory.size() - at);
    wrong += std::memcmp(memory.data() + at, &word, num_bytes) != 0 ? 1 : 0;
  }
  return wrong;
}

DeviceMemory::~DeviceMemory() {
  try {
    device_.free(address_);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the case has failed already
  }
}

DeviceBench::DeviceBench(Device& device, std::size_t num_bytes)
    : device_(device),
      pinned_(device, kNumWords * sizeof(SharedWord) + num_bytes),
      first_(device, device.make_stream()),
      second_(device, device.make_stream()),
      here_(device, device.make_event()) {
  for (std::size_t i = 0; i < kNumWords; ++i) new (&word(i)) SharedWord;
}

DeviceBench::~DeviceBench() {
  for (const Hold& hold : holds_) release(hold.word, hold.value);
  for (const OwnedStream* stream : {&first_, &second_}) {
    try {
      device_.synchronize(stream->get());
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the case has failed already
    }
  }
}

SharedWord& DeviceBench::word(std::size_t index) {
  return reinterpret_cast<SharedWord*>(pinned_.bytes().data())[index];
}

DeviceAddress DeviceBench::word_address(std::size_t index) {
  return pinned_.address_of(&word(index));
}

void DeviceBench::hold(StreamHandle stream, std::size_t index, std::uint32_t value) {
  device_.wait_word(stream, word_address(index), value);
  holds_.push_back({index, value});
}

void DeviceBench::release(std::size_t index, std::uint32_t value) {
  word(index).value.store(value, std::memory_order_release);
  std::erase_if(holds_, [&](const Hold& hold) { return hold.word == index; });
}

bool DeviceBench::gets_here(StreamHandle stream, Nanoseconds limit) {
  device_.record(stream, here_.get());
  return comes_true([&] { return device_.is_done(here_.get()); }, limit);
}

namespace {

constexpr auto kMoment = 20ms;  ///< after which what is held still has not happened

std::uint32_t load(SharedWord& word) { return word.value.load(std::memory_order_acquire); }

template <typename Call>
void expect_error(const char* what, const Call& call) {
  try {
    call();
  } catch (const Error&) {
    return;
  }
  fail(ErrorKind::kInternal, "expected an error: ", what);
}

void copies_every_size(Device& device) {
  DeviceBench bench(device, 2 << 20);
  constexpr std::size_t kMost = 1 << 20;
  const DeviceMemory memory(device, kMost);
  const auto out = bench.host().first(kMost);
  const auto back = bench.host().subspan(kMost, kMost - 1024);
  for (const std::size_t size : {1U, 3U, 4U, 63U, 4096U, 65'537U, 1'000'003U}) {
    const auto seed = static_cast<std::uint32_t>(size);
    fill_pattern(out.first(size), seed);
    std::memset(back.data(), 0, back.size());
    device.copy_to_device(bench.first(), memory.address(), out.data(), size);
    device.copy_to_host(bench.first(), back.data(), memory.address(), size);
    device.synchronize(bench.first());
    expect(wrong_words(back.first(size), seed) == 0, size, " bytes to come back as they were");
    expect(back[size] == std::byte{0}, "nothing to be written behind ", size, " bytes");
  }
}

void copies_from_the_middle(Device& device) {
  DeviceBench bench(device);
  const DeviceMemory memory(device, 100'000);
  const auto host = bench.host();
  fill_pattern(host.first(100'000), 9);
  device.copy_to_device(bench.first(), memory.address(), host.data(), 100'000);
  device.copy_to_host(bench.first(), host.data() + 200'000, memory.address() + 40'000, 20'000);
  device.synchronize(bench.first());
  expect(wrong_words(host.subspan(200'000, 20'000), 9, 10'000) == 0, "the bytes from 40,000 on");
}

void data_is_there_when_the_word_is(Device& device) {
  constexpr std::size_t kBytes = 64 << 10;
  constexpr std::uint32_t kRounds = 100;
  DeviceBench bench(device, (kRounds + 1) * kBytes);
  const DeviceMemory memory(device, kBytes);
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    const auto out = bench.host().first(kBytes);
    const auto back = bench.host().subspan(round * kBytes, kBytes);
    fill_pattern(out, round);
    device.copy_to_device(bench.first(), memory.address(), out.data(), kBytes);
    device.copy_to_host(bench.first(), back.data(), memory.address(), kBytes);
    device.write_word(bench.first(), bench.word_address(0), round);
    expect(comes_true([&] { return load(bench.word(0)) == round; }), "word ", round, " to come");
    expect(wrong_words(back, round) == 0, "all data to be there at word ", round);
  }
}

void a_wait_holds_until_the_cpu_stores(Device& device) {
  DeviceBench bench(device);
  bench.hold(bench.first(), 0, 5);
  device.write_word(bench.first(), bench.word_address(1), 1);
  for (const std::uint32_t early : {0U, 1U, 4U}) {
    bench.word(0).value.store(early, std::memory_order_release);
    expect(!comes_true([&] { return load(bench.word(1)) == 1; }, kMoment), "5 to be awaited at ",
           early);
  }
  bench.release(0, 5);
  expect(comes_true([&] { return load(bench.word(1)) == 1; }), "the wait for 5 to end at 5");
}

void waits_compare_as_counters_that_wrap(Device& device) {
  struct Try {
    std::uint32_t held;  ///< a value that does not suffice
    std::uint32_t awaited;
    std::uint32_t enough;
  };
  constexpr std::array kTries{
      Try{0xffff'ffff, 0, 0},           Try{0xffff'fffe, 1, 2},
      Try{0xffff'fffd, 0xffff'fffe, 1}, Try{0x7fff'ffff, 0x8000'0000, 0x8000'0000},
      Try{4, 0x8000'0004, 0x8000'0005}, Try{0x8000'0000, 0, 0x7fff'ffff},
  };
  for (const Try& each : kTries) {
    DeviceBench bench(device);
    bench.word(0).value.store(each.held, std::memory_order_release);
    bench.hold(bench.first(), 0, each.awaited);
    expect(!bench.gets_here(bench.first(), kMoment), each.awaited, " to be awaited at ", each.held);
    expect(!reached(each.held, each.awaited), "the CPU to compare in the same way");
    bench.release(0, each.enough);
    expect(bench.gets_here(bench.first()), "the wait for ", each.awaited, " to end at ",
           each.enough);
    expect(reached(each.enough, each.awaited), "the CPU to compare in the same way");
  }
}

void a_wait_ends_at_a_write_of_the_device(Device& device) {
  DeviceBench bench(device);
  bench.hold(bench.first(), 0, 1);
  device.write_word(bench.first(), bench.word_address(1), 7);
  bench.hold(bench.second(), 1, 7);
  expect(!bench.gets_here(bench.second(), kMoment), "the second stream to wait for the first");
  bench.release(0, 1);
  expect(bench.gets_here(bench.second()), "the second stream to go on after the first");
}

void a_wait_holds_no_other_stream(Device& device) {
  const DeviceMemory memory(device, 4096);  // first, as it is freed when nothing is held any more
  DeviceBench bench(device);
  bench.hold(bench.first(), 0, 1);
  device.copy_to_device(bench.second(), memory.address(), bench.host().data(), 4096);
  device.copy_to_host(bench.second(), bench.host().data() + 4096, memory.address(), 4096);
  expect(bench.gets_here(bench.second()), "the second stream to be free");
}

void the_default_stream_is_a_stream(Device& device) {
  const DeviceMemory memory(device, 4096);
  DeviceBench bench(device);
  const OwnedEvent event(device, device.make_event());
  fill_pattern(bench.host().first(4096), 4);
  device.copy_to_device(kDefaultStream, memory.address(), bench.host().data(), 4096);
  device.record(kDefaultStream, event.get());
  device.wait_event(bench.first(), event.get());
  device.copy_to_host(bench.first(), bench.host().data() + 4096, memory.address(), 4096);
  device.synchronize(bench.first());
  expect(wrong_words(bench.host().subspan(4096, 4096), 4) == 0, "the copies to be in order");
  bench.hold(bench.first(), 0, 1);
  expect(bench.gets_here(kDefaultStream), "the default stream to be free while another waits");
}

void events_order_streams(Device& device) {
  DeviceBench bench(device);
  const OwnedEvent event(device, device.make_event());
  expect(device.is_done(event.get()), "an event that was never recorded to be reached");
  bench.hold(bench.first(), 0, 1);
  device.record(bench.first(), event.get());
  device.wait_event(bench.second(), event.get());
  expect(!device.is_done(event.get()), "the event not to be reached yet");
  expect(!bench.gets_here(bench.second(), kMoment), "the second stream to wait");
  bench.release(0, 1);
  expect(bench.gets_here(bench.second()), "the second stream to go on");
  expect(device.is_done(event.get()), "the event to be reached");
}

void a_wait_is_for_the_event_as_it_was(Device& device) {
  DeviceBench bench(device);
  const OwnedEvent event(device, device.make_event());
  device.record(bench.first(), event.get());
  device.wait_event(bench.second(), event.get());
  bench.hold(bench.first(), 0, 1);
  device.record(bench.first(), event.get());  // again, behind a wait
  expect(bench.gets_here(bench.second()), "the second stream to wait for the first time only");
  expect(!device.is_done(event.get()), "the event to count as it was recorded last");
}

void a_wait_is_for_the_stream_that_recorded(Device& device) {
  DeviceBench bench(device);
  const OwnedEvent event(device, device.make_event());
  bench.hold(bench.first(), 0, 1);
  device.record(bench.first(), event.get());
  device.wait_event(bench.second(), event.get());
  device.record(kDefaultStream, event.get());  // at once, because nothing is before it
  expect(comes_true([&] { return device.is_done(event.get()); }), "the latest record to count");
  expect(!bench.gets_here(bench.second(), kMoment), "the second stream to wait for the first");
  bench.release(0, 1);
  expect(bench.gets_here(bench.second()), "the second stream to go on");
}

void synchronize_waits_for_all(Device& device) {
  DeviceBench bench(device);
  bench.hold(bench.first(), 0, 1);
  device.write_word(bench.first(), bench.word_address(1), 1);
  std::thread later([&] {
    std::this_thread::sleep_for(kMoment);
    bench.release(0, 1);
  });
  device.synchronize(bench.first());
  const bool came = load(bench.word(1)) == 1;
  later.join();
  expect(came, "all to be done after synchronize()");
}

void a_thousand_calls_fit_behind_a_wait(Device& device) {
  const DeviceMemory memory(device, 4096);  // first, as it is freed when nothing is held any more
  DeviceBench bench(device);
  bench.hold(bench.first(), 0, 1);
  for (std::uint32_t i = 1; i < 960; ++i) {
    if (i % 2 == 0) {
      device.write_word(bench.first(), bench.word_address(1), i);
    } else {
      device.copy_to_host(bench.first(), bench.host().data(), memory.address(), 4096);
    }
  }
  expect(load(bench.word(1)) == 0, "nothing to happen before the release");
  bench.release(0, 1);
  expect(bench.gets_here(bench.first()), "all to be executed");
  expect(load(bench.word(1)) == 958, "958, not ", load(bench.word(1)));
}

void things_may_be_made_while_a_word_is_awaited(Device& device) {
  DeviceBench bench(device);
  bench.hold(bench.first(), 0, 1);
  const OwnedStream stream(device, device.make_stream());
  const OwnedEvent event(device, device.make_event());
  device.record(stream.get(), event.get());
  expect(comes_true([&] { return device.is_done(event.get()); }), "a new stream to be free");
  bench.release(0, 1);
}

void host_memory_is_registered_again_and_again(Device& device) {
  const Descriptor fd = make_memory_fd("slipstream-test", 1 << 20);
  const SharedMapping mapping(fd.get(), 1 << 20);
  for (int round = 0; round < 3; ++round) {
    device.register_host({mapping.data(), mapping.size()});
    expect_error("registered twice",
                 [&] { device.register_host({mapping.data(), mapping.size()}); });
    device.unregister_host(mapping.data());
  }
  expect_error("not registered", [&] { device.unregister_host(mapping.data()); });
}

void refuses_the_engines_threads(Device& device) {
  DeviceBench bench(device);
  std::thread([&] {
    const EngineThread engine;
    expect_error("an engine's call", [&] { device.record(bench.first(), device.make_event()); });
    expect_error("an engine's call", [&] { device.synchronize(bench.first()); });
  }).join();
  device.synchronize(bench.first());
}

void any_thread_may_call(Device& device) {
  DeviceBench bench(device);
  const DeviceMemory memory(device, 1 << 16);
  fill_pattern(bench.host().first(1 << 16), 3);
  std::thread([&] {
    device.copy_to_device(bench.first(), memory.address(), bench.host().data(), 1 << 16);
    device.copy_to_host(bench.first(), bench.host().data() + (1 << 16), memory.address(), 1 << 16);
    device.synchronize(bench.first());
  }).join();
  expect(wrong_words(bench.host().subspan(1 << 16, 1 << 16), 3) == 0, "the copies to be right");
}

constexpr std::array kCases{
    DeviceCase{"copies_every_size", copies_every_size},
    DeviceCase{"copies_from_the_middle", copies_from_the_middle},
    DeviceCase{"data_is_there_when_the_word_is", data_is_there_when_the_word_is},
    DeviceCase{"a_wait_holds_until_the_cpu_stores", a_wait_holds_until_the_cpu_stores},
    DeviceCase{"waits_compare_as_counters_that_wrap", waits_compare_as_counters_that_wrap},
    DeviceCase{"a_wait_ends_at_a_write_of_the_device", a_wait_ends_at_a_write_of_the_device},
    DeviceCase{"a_wait_holds_no_other_stream", a_wait_holds_no_other_stream},
    DeviceCase{"the_default_stream_is_a_stream", the_default_stream_is_a_stream},
    DeviceCase{"events_order_streams", events_order_streams},
    DeviceCase{"a_wait_is_for_the_event_as_it_was", a_wait_is_for_the_event_as_it_was},
    DeviceCase{"a_wait_is_for_the_stream_that_recorded", a_wait_is_for_the_stream_that_recorded},
    DeviceCase{"synchronize_waits_for_all", synchronize_waits_for_all},
    DeviceCase{"a_thousand_calls_fit_behind_a_wait", a_thousand_calls_fit_behind_a_wait},
    DeviceCase{"things_may_be_made_while_a_word_is_awaited",
               things_may_be_made_while_a_word_is_awaited},
    DeviceCase{"host_memory_is_registered_again_and_again",
               host_memory_is_registered_again_and_again},
    DeviceCase{"refuses_the_engines_threads", refuses_the_engines_threads},
    DeviceCase{"any_thread_may_call", any_thread_may_call},
};

}  // namespace

std::span<const DeviceCase> device_contract() { return kCases; }

}  // namespace slipstream::test
