#include "plugin.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hmac.h"

namespace slipstream::nccl {
namespace {

std::uint32_t random_epoch() {
  const Nonce nonce = random_nonce();
  std::uint32_t epoch = 0;
  std::memcpy(&epoch, nonce.data(), sizeof epoch);
  return epoch;
}

/// A job of 8 hosts with 8 GPUs opens thousands of connections, and many systems allow 1024 files
/// unless a process asks for more. NCCL asks only in the process that makes its unique id.
void raise_file_limit(const Log& log) {
  constexpr rlim_t kEnough = 65536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t allowed = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur >= allowed) return;
  const rlim_t before = std::exchange(limit.rlim_cur, allowed);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  log(LogLevel::kInfo, "this process may now open ", allowed, " files; it was ", before);
}

}  // namespace

void Plugin::init(Logger logger) {
  logger_ = logger;
  const std::lock_guard lock(starting_);
  if (state_ != nullptr) return;
  const Options options = Options::from_environment();
  raise_file_limit(log_);
  auto devices = find_devices(options, log_);
  log_(LogLevel::kInfo, "every connection has ", options.num_streams, " streams; ",
       options.num_threads, " threads help NCCL's");
  state_.reset(new State{options, std::move(devices), Workers(options.num_threads)});
}

Plugin::State& Plugin::state() {
  const std::lock_guard lock(starting_);
  if (state_ == nullptr) fail(ErrorKind::kUsage, "the net plugin is used before its init()");
  return *state_;
}

int Plugin::num_devices() { return static_cast<int>(state().devices.size()); }

const Device& Plugin::device(int number) {
  const auto& devices = state().devices;
  if (number >= 0 && static_cast<std::size_t>(number) < devices.size()) {
    return devices[static_cast<std::size_t>(number)];
  }
  fail(ErrorKind::kUsage, "the device is ", number, "; allowed: 0 to ", devices.size() - 1);
}

std::unique_ptr<ListenComm> Plugin::listen(int number, Handle& handle) {
  auto listening = std::make_unique<ListenComm>();
  listening->receiver =
      std::make_unique<RecvComm>(state().options, device(number).addresses, random_epoch(), log_);
  handle = listening->receiver->handle();
  return listening;
}

std::unique_ptr<SendComm> Plugin::connect(Handle& handle) {
  std::unique_ptr<SendComm> comm = state().attempts.take(std::exchange(handle.attempt, 0));
  if (comm == nullptr) comm = std::make_unique<SendComm>(state().options, handle, log_);
  comm->drive();
  comm->check();
  if (!comm->is_connected()) {
    handle.attempt = state().attempts.keep(std::move(comm));
    return nullptr;
  }
  state().workers.add(*comm);
  return comm;
}

std::unique_ptr<RecvComm> Plugin::accept(ListenComm& listening) {
  if (listening.receiver == nullptr) {
    fail(ErrorKind::kUsage, "a listening comm has accepted its connection already; allowed: one");
  }
  const auto patience = state().options.connect_deadline;
  const TimePoint now = Clock::now();
  if (listening.deadline == TimePoint::max()) listening.deadline = now + patience;
  listening.receiver->drive();
  listening.receiver->check();
  if (listening.receiver->is_connected()) {
    state().workers.add(*listening.receiver);
    return std::move(listening.receiver);
  }
  if (now < listening.deadline) return nullptr;
  fail(ErrorKind::kPeerTimeout, "no rank has connected within ", seconds(patience),
       " s (SLIPSTREAM_CONNECT_TIMEOUT); check that all ranks run, and that the network lets "
       "connections to this host pass");
}

void Plugin::close(std::unique_ptr<Comm> comm) {
  if (comm != nullptr) state().workers.remove(*comm);
}

void Plugin::write(LogLevel level, const std::string& text) const {
  const Logger logger = logger_;
  if (logger == nullptr || level == LogLevel::kDebug) return;
  const bool informs = level == LogLevel::kInfo;
  logger(informs ? Level::kInfo : Level::kWarning, kInitAndNet, "slipstream", 0,
         "NET/Slipstream : %s", text.c_str());
}

}  // namespace slipstream::nccl
