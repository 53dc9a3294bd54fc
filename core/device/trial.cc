#include "device/trial.h"

#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "device/owned.h"
#include "device/pinned_memory.h"
#include "gate/gate.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

constexpr std::uint32_t kReleased = 1, kPattern = 0x5a17c0de;
constexpr std::size_t kCopiedBytes = sizeof kPattern;

/// Memory, a stream and an event of the trial.
class Trial {
 public:
  explicit Trial(Device& device)
      : device_(device),
        pinned_(device, sizeof(Words)),
        words_(new (pinned_.bytes().data()) Words),
        memory_(device.allocate(kCopiedBytes)),
        stream_(device, device.make_stream()),
        end_(device, device.make_event()) {}
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  /// A stream may still execute commands if a later call has failed.
  ~Trial() {
    words_->release.value.store(kReleased);
    try {
      device_.synchronize(stream_.get());
      device_.free(memory_);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a failed device owns nothing
    }
  }

  /// Enqueues a wait, and copies that end after it.
  void enqueue() {
    words_->sent.value.store(kPattern);
    device_.wait_word(stream_.get(), address_of(words_->release), kReleased);
    device_.copy_to_device(stream_.get(), memory_, bytes_of(words_->sent), kCopiedBytes);
    device_.copy_to_host(stream_.get(), bytes_of(words_->received), memory_, kCopiedBytes);
    device_.write_word(stream_.get(), address_of(words_->ended), kReleased);
    device_.record(stream_.get(), end_.get());
  }

  /// Writes the word. Returns whether the stream has ended within the limit.
  [[nodiscard]] bool release(Nanoseconds limit) {
    words_->release.value.store(kReleased);
    const TimePoint until = Clock::now() + limit;
    while (!device_.is_done(end_.get())) {
      if (Clock::now() > until) return false;
      std::this_thread::sleep_for(50us);
    }
    return true;
  }

  /// Whether the stream has copied the right bytes, and has written its word.
  [[nodiscard]] bool is_right() const {
    return words_->received.value.load() == kPattern && words_->ended.value.load() == kReleased;
  }

 private:
  struct Words {
    SharedWord release, sent, received, ended;
  };

  [[nodiscard]] DeviceAddress address_of(const SharedWord& word) const {
    return pinned_.address_of(&word);
  }
  static std::byte* bytes_of(SharedWord& word) { return reinterpret_cast<std::byte*>(&word.value); }

  Device& device_;
  PinnedMemory pinned_;
  Words* words_;
  DeviceAddress memory_;
  OwnedStream stream_;
  OwnedEvent end_;
};

/// Keeps a trial until the process ends, because its destructor would wait for its stream.
void keep(std::unique_ptr<Trial> trial) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<Trial>>;
  const std::scoped_lock lock(mutex);
  kept.push_back(std::move(trial));
}

}  // namespace

void try_device(Device& device, Nanoseconds limit) {
  auto trial = std::make_unique<Trial>(device);
  trial->enqueue();
  if (!trial->release(limit)) {
    keep(std::move(trial));
    fail(ErrorKind::kUnsupported, device.describe(),
         " does not see words of host memory: a stream waited for one, and did not go on within ",
         seconds(limit), " s after it was written; use tensors of the CPU");
  }
  if (trial->is_right()) return;
  fail(ErrorKind::kInternal, device.describe(),
       " has executed two copies and a write of a word, but their results are wrong; please report "
       "it");
}

}  // namespace slipstream
