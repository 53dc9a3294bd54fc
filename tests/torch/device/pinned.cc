#include "pinned.h"

#include <cstring>
#include <map>
#include <mutex>

namespace slipstream::teststream {
namespace {

void release(void* memory);

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t num_bytes) override {
    void* memory = ::operator new(num_bytes, std::align_val_t(64));
    const std::scoped_lock lock(mutex_);
    sizes_[memory] = num_bytes;
    return {memory, memory, release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* target, const void* source, std::size_t num_bytes) const override {
    std::memcpy(target, source, num_bytes);
  }

  void free(void* memory) {
    {
      const std::scoped_lock lock(mutex_);
      sizes_.erase(memory);
    }
    ::operator delete(memory, std::align_val_t(64));
  }

  bool holds(const void* memory) {
    const std::scoped_lock lock(mutex_);
    auto found = sizes_.upper_bound(memory);
    if (found == sizes_.begin()) return false;
    --found;
    return memory < static_cast<const std::byte*>(found->first) + found->second;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::size_t> sizes_;
};

PinnedAllocator& made() {
  static PinnedAllocator& allocator = *new PinnedAllocator;  // never destroyed, as the device
  return allocator;
}

void release(void* memory) { made().free(memory); }

}  // namespace

c10::Allocator& pinned_allocator() { return made(); }

bool is_pinned(const void* memory) { return made().holds(memory); }

}  // namespace slipstream::teststream
