#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/fork.h"
#include "negotiation/channel.h"
#include "negotiation/rounds.h"
#include "slipstream/negotiation.h"

namespace slipstream {
namespace {

constexpr Nanoseconds kLongestSleep = 10s;  // no event needs it; TimePoint::max() would overflow

}  // namespace

/// The thread that runs the rounds, with the data that it shares with its callers. While tensors
/// wait here and no round runs, it drives the engine itself, so that it notices a round of other
/// ranks at once. If nothing is submitted, it leaves the engine alone.
class NegotiationThread final : private GroupWatcher {
 public:
  NegotiationThread(Engine& engine, const Group& group, const NegotiationOptions& options, Log log)
      : options_(options), channel_(engine, group), rounds_(channel_, options, std::move(log)) {
    engine.watch(channel_.group(), this);
    thread_ = std::thread([this] { loop(); });
  }

  ~NegotiationThread() override { close(); }
  NegotiationThread(const NegotiationThread&) = delete;
  NegotiationThread& operator=(const NegotiationThread&) = delete;

  void submit(std::span<const Submission> tensors, bool together);
  void join();
  std::optional<Outcome> next(Nanoseconds timeout);
  NegotiationStats stats() const {
    const std::scoped_lock lock(mutex_);
    return stats_;
  }
  void close();
  [[nodiscard]] bool is_here() const { return origin_.is_here(); }

 private:
  // GroupWatcher
  void ahead(std::uint64_t number) override {
    change([&] { ahead_ = std::max(ahead_, number); });
  }
  void troubled() override {
    change([&] { is_troubled_ = true; });
  }

  /// Tensors in the order of submission, with the lengths of their units.
  struct Submitted {
    std::vector<Submission> tensors;
    std::vector<std::size_t> sizes;
  };

  /// Changes data that the thread reads, and ends its sleep. Returns whether it sleeps in the
  /// engine.
  template <typename Change>
  bool change(const Change& what, bool waits_for_cycle = false);
  void add_submitted(Submitted&& submitted, std::vector<FailedTensor>& failed);
  void take_in(std::span<const Submission> unit);
  void check_made_here() const;
  void check_open() const;
  void loop();
  bool take_submitted();
  [[nodiscard]] TimePoint next_round(TimePoint now);
  void run_round();
  void sleep(TimePoint until);
  void publish(Outcome&& outcome);
  void end(const Error& cause);

  const Origin origin_;
  const NegotiationOptions options_;
  Channel channel_;

  // Used by the thread only.
  Rounds rounds_;
  TimePoint round_began_{};
  TimePoint asked_at_ = TimePoint::max();  // time at which other ranks were seen to be ahead

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable outcomes_filled_;
  Submitted submitted_;
  std::unordered_set<std::string_view> names_;  // submitted, but not in an outcome yet
  std::deque<Outcome> outcomes_;
  bool is_joining_ = false, joins_ = false, is_troubled_ = false;
  bool is_closing_ = false, has_ended_ = false;
  std::uint64_t ahead_ = 0;
  std::optional<Error> failure_;
  NegotiationStats stats_;
  std::shared_ptr<Completion> event_;  // finishing it ends the thread's sleep
  bool sleeps_in_engine_ = false;
  bool sleeps_for_cycle_ = false;  // new submissions need not end the sleep
  bool has_changed_ = false;

  std::mutex close_mutex_;  // locked while the thread is joined
  std::thread thread_;
};

template <typename Change>
bool NegotiationThread::change(const Change& what, bool waits_for_cycle) {
  std::shared_ptr<Completion> event;
  bool in_engine = false;
  {
    const std::scoped_lock lock(mutex_);
    what();
    has_changed_ = true;
    if (waits_for_cycle && sleeps_for_cycle_) return false;
    event = std::exchange(event_, nullptr);
    in_engine = sleeps_in_engine_;
  }
  if (event) event->finish(std::nullopt);
  return event && in_engine;
}

/// Called before any lock, because another thread of the parent may have held it at the fork.
void NegotiationThread::check_made_here() const {
  if (is_here()) return;
  fail(ErrorKind::kUsage,
       "a negotiator was used in a forked child process, but it belongs to the parent; create a "
       "negotiator in the process that uses it");
}

void NegotiationThread::check_open() const {
  if (failure_) throw Error(*failure_);
  if (is_closing_)
    fail(ErrorKind::kAborted, "the negotiator of group '", channel_.name(),
         "' is closed; create a new one");
}

/// Called under the lock.
void NegotiationThread::take_in(std::span<const Submission> unit) {
  if (unit.empty()) return;
  if (joins_) {
    fail(ErrorKind::kUsage, "rank ", channel_.rank(), " submitted tensor '",
         unit.front().tensor->name, "' after it had joined; wait until all ranks have joined");
  }
  for (std::size_t i = 0; i < unit.size(); ++i) {
    const std::string& name = unit[i].tensor->name;
    if (!name.empty() && names_.insert(name).second) continue;
    for (std::size_t j = 0; j < i; ++j) names_.erase(unit[j].tensor->name);
    if (name.empty())
      fail(ErrorKind::kUsage, "a tensor has no name; give it the same name on all ranks");
    fail(ErrorKind::kUsage, "tensor '", name,
         "' was submitted again before it was ready on all ranks; give it another name, or wait "
         "until it is ready");
  }
  submitted_.tensors.insert(submitted_.tensors.end(), unit.begin(), unit.end());
  submitted_.sizes.push_back(unit.size());
}

void NegotiationThread::submit(std::span<const Submission> tensors, bool together) {
  check_made_here();
  std::exception_ptr refused;  // the tensors before it are submitted nevertheless
  const bool wakes = change(
      [&] {
        check_open();
        const std::size_t size = together ? tensors.size() : 1;
        try {
          for (auto left = tensors; !left.empty(); left = left.subspan(size)) {
            take_in(left.first(size));
          }
        } catch (const Error&) {
          refused = std::current_exception();
        }
      },
      true);
  if (wakes) channel_.engine().wake();
  if (refused) std::rethrow_exception(refused);
}

void NegotiationThread::join() {
  check_made_here();
  const bool wakes = change([&] {
    check_open();
    is_joining_ = joins_ = true;
  });
  if (wakes) channel_.engine().wake();
}

std::optional<Outcome> NegotiationThread::next(Nanoseconds timeout) {
  check_made_here();
  std::unique_lock lock(mutex_);
  outcomes_filled_.wait_until(lock, Clock::now() + timeout,
                              [&] { return !outcomes_.empty() || has_ended_; });
  if (outcomes_.empty()) {
    if (has_ended_) throw Error(*failure_);
    return std::nullopt;
  }
  Outcome outcome = std::move(outcomes_.front());
  outcomes_.pop_front();
  return outcome;
}

void NegotiationThread::loop() {
  try {
    while (take_submitted()) {
      const TimePoint now = Clock::now();
      const TimePoint next = next_round(now);
      if (next <= now) {
        run_round();
      } else {
        sleep(next);
      }
    }
    end(Error(ErrorKind::kAborted,
              concat("the negotiator of group '", channel_.name(), "' was closed")));
  } catch (const Error& error) {
    end(error);
  } catch (const std::exception& error) {
    end(Error(ErrorKind::kInternal, error.what()));
  }
}

void NegotiationThread::add_submitted(Submitted&& submitted, std::vector<FailedTensor>& failed) {
  const TimePoint now = Clock::now();
  std::span<const Submission> left = submitted.tensors;
  for (const std::size_t size : submitted.sizes) {
    for (FailedTensor& each : rounds_.add(left.first(size), now)) failed.push_back(std::move(each));
    left = left.subspan(size);
  }
}

/// Returns false if the thread should end.
bool NegotiationThread::take_submitted() {
  Submitted submitted;
  bool is_behind = false;
  {
    const std::scoped_lock lock(mutex_);
    if (is_closing_) return false;
    has_changed_ = false;
    std::swap(submitted, submitted_);
    if (std::exchange(is_joining_, false)) rounds_.join();
    if (std::exchange(is_troubled_, false)) rounds_.distrust();
    is_behind = ahead_ > channel_.begun();
  }
  Outcome failed;
  add_submitted(std::move(submitted), failed.failed);
  if (!failed.failed.empty()) publish(std::move(failed));
  asked_at_ = is_behind ? std::min(asked_at_, Clock::now()) : TimePoint::max();
  return true;
}

/// The time at which the next round should begin, as far as is known.
TimePoint NegotiationThread::next_round(TimePoint now) {
  const bool is_asked = asked_at_ != TimePoint::max();
  if (is_asked && rounds_.has_part()) return now;
  if (rounds_.has_news(now)) return std::max(now, round_began_ + options_.cycle);
  const TimePoint asked = is_asked ? asked_at_ + options_.hold : TimePoint::max();
  return std::min({asked, rounds_.next_report(), now + kLongestSleep});
}

void NegotiationThread::run_round() {
  round_began_ = Clock::now();
  Outcome outcome = rounds_.run();
  publish(std::move(outcome));
}

void NegotiationThread::publish(Outcome&& outcome) {
  const std::scoped_lock lock(mutex_);
  stats_ = rounds_.stats();
  if (outcome.ready.empty() && outcome.failed.empty() && !outcome.last_joined) return;
  for (const AgreedTensor& each : outcome.ready) {
    if (each.submitted) names_.erase(each.tensor->name);
  }
  for (const FailedTensor& each : outcome.failed) names_.erase(each.tensor->name);
  if (outcome.last_joined) joins_ = false;
  outcomes_.push_back(std::move(outcome));
  outcomes_filled_.notify_one();
}

void NegotiationThread::sleep(TimePoint until) {
  std::shared_ptr<Completion> event;
  const bool in_engine = rounds_.has_part();
  {
    const std::scoped_lock lock(mutex_);
    if (has_changed_ || is_closing_) return;
    event = event_ = std::make_shared<Completion>();
    sleeps_in_engine_ = in_engine;
    sleeps_for_cycle_ = rounds_.has_news(Clock::now());
  }
  if (in_engine) {
    channel_.engine().wait_for_event(*event, until);
  } else {
    event->wait(until);
  }
  const std::scoped_lock lock(mutex_);
  event_.reset();
  sleeps_for_cycle_ = false;
}

/// Submissions that arrived meanwhile fail too.
void NegotiationThread::end(const Error& cause) {
  Submitted submitted;
  {
    const std::scoped_lock lock(mutex_);
    failure_ = cause;
    std::swap(submitted, submitted_);
  }
  Outcome outcome;
  add_submitted(std::move(submitted), outcome.failed);
  for (FailedTensor& each : rounds_.fail_all(cause)) outcome.failed.push_back(std::move(each));
  publish(std::move(outcome));
  const std::scoped_lock lock(mutex_);
  has_ended_ = true;
  outcomes_filled_.notify_all();
}

void NegotiationThread::close() {
  if (!is_here()) return;
  const bool wakes = change([&] { is_closing_ = true; });
  if (wakes) channel_.engine().wake();
  channel_.engine().watch(channel_.group(), nullptr);
  channel_.close();
  const std::scoped_lock lock(close_mutex_);
  if (thread_.joinable()) thread_.join();
}

Negotiator::Negotiator(Engine& engine, const std::shared_ptr<Group>& group,
                       const NegotiationOptions& options, Log log)
    : thread_(std::make_unique<NegotiationThread>(engine, *group, options, std::move(log))) {}

/// A forked child does not touch objects on which its parent's threads wait.
Negotiator::~Negotiator() {
  if (thread_->is_here()) return;
  [[maybe_unused]] NegotiationThread* const abandoned = thread_.release();
}

void Negotiator::submit(std::span<const Submission> tensors) { thread_->submit(tensors, true); }
void Negotiator::submit_each(std::span<const Submission> tensors) {
  thread_->submit(tensors, false);
}
void Negotiator::join() { thread_->join(); }
std::optional<Outcome> Negotiator::next(std::chrono::nanoseconds timeout) {
  return thread_->next(timeout);
}
NegotiationStats Negotiator::stats() const { return thread_->stats(); }
void Negotiator::close() { thread_->close(); }

}  // namespace slipstream
