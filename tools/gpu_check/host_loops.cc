// The CPU's side of the measurements: what an engine thread does, which touches memory and calls no
// CUDA. Times are in nanoseconds; a negative time says that nothing came within the limit.

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// A word that CPU and GPU share; nothing else lies on its cache line.
struct alignas(64) Word {
  std::uint32_t value;
};

int64_t nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

uint32_t load(const Word* word) {
  return std::atomic_ref(const_cast<uint32_t&>(word->value)).load(std::memory_order_acquire);
}

void store(Word* word, uint32_t value) {
  std::atomic_ref(word->value).store(value, std::memory_order_release);
}

// Cyclic, as CU_STREAM_WAIT_VALUE_GEQ compares.
bool reached(const Word* word, uint32_t value) {
  return static_cast<int32_t>(load(word) - value) >= 0;
}

int64_t await(const Word* word, uint32_t value, int64_t limit, Clock::time_point start) {
  for (uint32_t turn = 1; !reached(word, value); ++turn) {
    _mm_pause();
    if (turn % 1024 == 0 && nanoseconds_since(start) > limit) return -1;
  }
  return nanoseconds_since(start);
}

}  // namespace

extern "C" {

int64_t await_word(const Word* word, uint32_t value, int64_t limit) {
  return await(word, value, limit, Clock::now());
}

// Waits `delay`, stores to `gate`, and returns how long after the store `ready` is seen.
int64_t release_and_await(Word* gate, uint32_t gate_value, const Word* ready, uint32_t ready_value,
                          int64_t delay, int64_t limit) {
  const auto begin = Clock::now();
  while (nanoseconds_since(begin) < delay) _mm_pause();
  const auto start = Clock::now();
  store(gate, gate_value);
  return await(ready, ready_value, limit, start);
}

// Stores to `gate` later, on a thread of its own, so that a caller stuck in the driver is released.
void release_after(Word* gate, uint32_t value, int64_t delay) {
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::nanoseconds(delay));
    store(gate, value);
  }).detach();
}

// How many words differ from `seed`, `seed + 1`, ...
int64_t wrong_words(const uint32_t* words, int64_t count, uint32_t seed) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) wrong += words[i] != seed + static_cast<uint32_t>(i);
  return wrong;
}

// Sees `count` signals, each in its turn, and checks the data of each at once: data of signal k
// lies at `data + k * stride` and begins with `seed + k`. Returns the number of buffers with a
// wrong word, or -1 - k if signal k did not come.
int64_t check_burst(const Word* ready, uint32_t first, int64_t count, const char* data,
                    int64_t stride, int64_t words, uint32_t seed, int64_t limit) {
  int64_t early = 0;
  for (int64_t k = 0; k < count; ++k) {
    if (await(ready, first + static_cast<uint32_t>(k), limit, Clock::now()) < 0) return -1 - k;
    const auto* buffer = reinterpret_cast<const uint32_t*>(data + k * stride);
    early += wrong_words(buffer, words, seed + static_cast<uint32_t>(k)) != 0;
  }
  return early;
}

// A host function for cuLaunchHostFunc.
void raise_word(void* word) {
  auto* shared = static_cast<Word*>(word);
  store(shared, load(shared) + 1);
}

struct RelayJob {
  Word* landed;  // one word a slot: the GPU has copied round r into `from`
  Word* passed;  // the CPU has put round r into `to`
  Word* sent;    // the GPU has copied round r out of `to`
  const char* from;
  char* to;  // equal to `from`: nothing is copied, only flags are passed on
  int64_t slot_bytes;
  int64_t slots;
  int64_t chunks;
  int64_t threads;
  int64_t limit;
};

// Passes chunks from one ring of slots to another; returns its duration.
int64_t relay(const RelayJob* job) {
  std::atomic<bool> failed{false};
  const auto start = Clock::now();
  const auto work = [&](int64_t first) {
    for (int64_t i = first; i < job->chunks && !failed; i += job->threads) {
      const int64_t slot = i % job->slots;
      const auto round = static_cast<uint32_t>(i / job->slots + 1);
      bool come = await(job->landed + slot, round, job->limit, start) >= 0;
      if (job->from != job->to) {
        come = come && await(job->sent + slot, round - 1, job->limit, start) >= 0;
        if (come) {
          std::memcpy(job->to + slot * job->slot_bytes, job->from + slot * job->slot_bytes,
                      static_cast<size_t>(job->slot_bytes));
        }
      }
      if (!come) failed = true;
      store(job->passed + slot, round);
    }
  };
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < job->threads; ++t) threads.emplace_back(work, t);
  for (auto& thread : threads) thread.join();
  return failed ? -1 : nanoseconds_since(start);
}

}  // extern "C"
