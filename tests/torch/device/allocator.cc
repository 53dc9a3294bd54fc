#include "allocator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "device.h"
#include "slipstream/error.h"

namespace slipstream::teststream {
namespace {

constexpr std::size_t kGrain = 512;  // sizes are rounded up to it, as for CUDA

struct Block {
  std::size_t num_bytes = 0;
  StreamHandle home{};                ///< the stream that was current at the allocation
  std::set<StreamHandle> users{};     ///< further streams
  std::vector<EventHandle> events{};  ///< what the users had to do when the block was freed
};

void release(void* memory) noexcept;

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t num_bytes) override {
    if (num_bytes == 0) return {nullptr, kDevice};
    void* memory = take((num_bytes + kGrain - 1) / kGrain * kGrain, handle_of(current_stream()));
    return {memory, memory, release, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* target, const void* source, std::size_t num_bytes) const override {
    std::byte* to = kernel_bytes(target, num_bytes);
    const std::byte* from = kernel_bytes(source, num_bytes);
    device().launch(handle_of(current_stream()), [=] { std::memcpy(to, from, num_bytes); });
  }

  void free(void* memory) {
    const std::scoped_lock lock(mutex_);
    Block& block = blocks_.at(memory);
    for (const StreamHandle user : block.users) {
      block.events.push_back(device().make_event());
      device().record(user, block.events.back());
    }
    block.users.clear();
    if (block.events.empty()) {
      offer(memory);
    } else {
      limbo_.push_back(memory);
    }
  }

  void note_user(void* memory, StreamHandle stream) {
    const std::scoped_lock lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found != blocks_.end() && found->second.home != stream) found->second.users.insert(stream);
  }

 private:
  void* take(std::size_t num_bytes, StreamHandle stream) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(limbo_, [this](void* memory) { return leaves_limbo(memory); });
    std::vector<void*>& cached = free_[{stream, num_bytes}];
    if (!cached.empty()) {
      void* memory = cached.back();
      cached.pop_back();
      poison(memory);
      return memory;
    }
    void* memory = reinterpret_cast<void*>(device().allocate(num_bytes));
    blocks_[memory] = {.num_bytes = num_bytes, .home = stream};
    return memory;
  }

  bool leaves_limbo(void* memory) {
    std::vector<EventHandle>& events = blocks_.at(memory).events;
    if (!std::ranges::all_of(events, [](EventHandle each) { return device().is_done(each); })) {
      return false;
    }
    for (const EventHandle event : events) device().destroy(event);
    events.clear();
    offer(memory);
    return true;
  }

  void offer(void* memory) {
    const Block& block = blocks_.at(memory);
    free_[{block.home, block.num_bytes}].push_back(memory);
  }

  /// Overwrites memory before it is used again.
  void poison(void* memory) {
    const Block& block = blocks_.at(memory);
    std::byte* bytes = kernel_bytes(memory, block.num_bytes);
    device().launch(block.home, [bytes, num_bytes = block.num_bytes] {
      std::memset(bytes, static_cast<int>(FakeMemory::kFreedByte), num_bytes);
    });
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::map<std::pair<StreamHandle, std::size_t>, std::vector<void*>> free_;
  std::vector<void*> limbo_;
};

CachingAllocator& caching_allocator() {
  static CachingAllocator& made = *new CachingAllocator;  // never destroyed, as the device
  return made;
}

void release(void* memory) noexcept {
  try {
    caching_allocator().free(memory);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a failed device uses no memory again
  }
}

}  // namespace

c10::Allocator& allocator() { return caching_allocator(); }

void record_stream(const c10::DataPtr& memory, c10::Stream stream) {
  caching_allocator().note_user(memory.get_context(), handle_of(stream));
}

}  // namespace slipstream::teststream
