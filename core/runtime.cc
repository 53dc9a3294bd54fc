#include "slipstream/runtime.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "base/hmac.h"
#include "collective/choose.h"
#include "engine/engine.h"
#include "reduce/reduce.h"
#include "topology/layout.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

// The only file that knows which transports exist, and which ranks are reached by which.
namespace slipstream {
namespace {

constexpr std::uint32_t kLeastControlBytes = 4096;  // large enough for the texts of errors
constexpr std::size_t kMostLogRecords = 1000;

/// The data that ranks exchange before they connect, as lines of text.
struct Address {
  std::string host_name, host_id, shm_name, alike;
  Place place;
  std::vector<std::string> endpoints;

  [[nodiscard]] std::string format() const {
    std::string text = concat("slipstream ", kProtocolVersion, "\n", host_name, "\n", host_id, "\n",
                              shm_name, "\n", alike, "\n", place.host, "\n", place.rack);
    for (const std::string& endpoint : endpoints) text += "\n" + endpoint;
    return text;
  }

  static Address parse(std::uint32_t rank, const std::string& text) {
    std::istringstream lines(text);
    std::string version, line;
    Address address;
    std::getline(lines, version);
    if (version != concat("slipstream ", kProtocolVersion)) {
      fail(ErrorKind::kConfig, "rank ", rank, " uses the protocol '", version.substr(0, 40),
           "', this rank uses 'slipstream ", kProtocolVersion,
           "'; install the same version of Slipstream on every host");
    }
    std::getline(lines, address.host_name);
    std::getline(lines, address.host_id);
    std::getline(lines, address.shm_name);
    std::getline(lines, address.alike);
    std::getline(lines, address.place.host);
    std::getline(lines, address.place.rack);
    while (std::getline(lines, line)) address.endpoints.push_back(line);
    return address;
  }
};

/// The settings that must be equal on all ranks, because each rank makes its own half of every
/// plan.
std::string settings_alike(const RuntimeConfig& config) {
  std::string sizes;
  for (const std::uint32_t size : config.dimensions) {
    sizes += concat(sizes.empty() ? "" : ",", size);
  }
  return concat("SLIPSTREAM_SEGMENT_BYTES=", config.segment_bytes,
                " SLIPSTREAM_EAGER_BYTES=", config.eager_bytes,
                " SLIPSTREAM_ALGORITHM=", name_of(config.algorithm),
                " SLIPSTREAM_DIMENSIONS=", sizes, " SLIPSTREAM_TLS=", config.tls ? 1 : 0);
}

/// The words of a text that another text does not have in the same place.
std::string words_unlike(const std::string& text, const std::string& other) {
  std::istringstream words(text), others(other);
  std::string unlike;
  for (std::string word, another; words >> word; another.clear()) {
    others >> another;
    if (word != another) unlike += concat(unlike.empty() ? "" : " ", word);
  }
  return unlike;
}

/// SLIPSTREAM_HOST_ID may make ranks of one host count as ranks of different hosts, as in tests.
Place place_of(const RuntimeConfig& config) {
  return {config.host_id.empty() ? identify_host() : config.host_id, config.rack};
}

RuntimeConfig checked(RuntimeConfig config) {
  const std::uint64_t segment = config.segment_bytes;
  if (segment < kMinSegmentBytes || segment > kMaxSegmentBytes || segment % kSegmentGrain != 0) {
    fail(ErrorKind::kConfig, "SLIPSTREAM_SEGMENT_BYTES is ", segment, "; allowed: multiples of ",
         kSegmentGrain, " from ", kMinSegmentBytes, " to ", kMaxSegmentBytes);
  }
  if (config.eager_bytes > segment) {
    fail(ErrorKind::kConfig, "SLIPSTREAM_EAGER_BYTES is ", config.eager_bytes,
         "; allowed: 0 to SLIPSTREAM_SEGMENT_BYTES, which is ", segment);
  }
  return config;
}

Identity identity_of(std::uint32_t rank, std::uint32_t world_size, std::uint32_t epoch,
                     std::span<const std::byte> key) {
  constexpr std::string_view kPurpose = "slipstream job key";
  return {rank, world_size, epoch,
          hmac_sha256(key, {std::as_bytes(std::span(kPurpose.data(), kPurpose.size()))})};
}

/// The number of streams that are opened if their number is tuned. In a large world each peer gets
/// few, because every rank opens some to all others.
std::uint16_t streams_for(std::uint32_t world_size) {
  if (world_size <= 4) return 24;
  if (world_size <= 8) return 16;
  if (world_size <= 16) return 8;
  return world_size <= 64 ? 4 : 2;
}

EngineOptions engine_options(const RuntimeConfig& config, std::uint32_t world_size) {
  EngineOptions options;
  options.segment_bytes = config.segment_bytes;
  options.eager_bytes = config.eager_bytes;
  options.peer_timeout = config.peer_timeout;
  options.stall_after = config.stall_after;
  options.operation_timeout = config.operation_timeout;
  options.algorithm = config.algorithm;
  options.most_streams = config.streams > 0 ? config.streams : streams_for(world_size);
  options.fixed_streams = config.streams > 0;
  if (config.first_streams > 0) options.first_streams = config.first_streams;
  options.dimensions = config.dimensions;
  return options;
}

TcpOptions tcp_options(const RuntimeConfig& config, std::uint32_t world_size, Log log) {
  TcpOptions options;
  options.bind = config.bind;
  options.num_streams = config.streams > 0 ? config.streams : streams_for(world_size);
  options.tls = config.tls;
  options.traffic = {config.congestion, config.dscp, config.pacing_bytes};
  options.connect_deadline = config.connect_timeout;
  options.reconnects = true;
  options.log = std::move(log);
  return options;
}

ShmOptions shm_options(const RuntimeConfig& config, Log log) {
  ShmOptions options;
  options.segment_bytes = static_cast<std::uint32_t>(config.segment_bytes);
  options.eager_bytes =
      std::max(kLeastControlBytes, static_cast<std::uint32_t>(config.eager_bytes));
  options.handshake_deadline = config.connect_timeout;
  options.log = std::move(log);
  return options;
}

/// Log records on their way to the thread that forwards them.
class LogQueue {
 public:
  void push(LogLevel level, const std::string& text) {
    const std::scoped_lock lock(mutex_);
    if (records_.size() < kMostLogRecords) records_.emplace_back(level, text);
    filled_.notify_one();
  }
  std::optional<std::pair<LogLevel, std::string>> pop(TimePoint until) {
    std::unique_lock lock(mutex_);
    filled_.wait_until(lock, until, [&] { return closed_ || is_woken_ || !records_.empty(); });
    is_woken_ = is_woken_ && !records_.empty();
    if (records_.empty()) return std::nullopt;
    auto record = std::move(records_.front());
    records_.pop_front();
    return record;
  }
  /// Ends a wait in pop(), or the next one, although there is no record.
  void wake() {
    const std::scoped_lock lock(mutex_);
    is_woken_ = true;
    filled_.notify_one();
  }
  void close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    filled_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::pair<LogLevel, std::string>> records_;  // guarded by mutex_
  bool is_woken_ = false;                                 // guarded by mutex_
  bool closed_ = false;                                   // guarded by mutex_
};

}  // namespace

/// The members are constructed in this order and destroyed in the opposite one.
class RuntimeParts {
 public:
  RuntimeParts(const Identity& who, const RuntimeConfig& how)
      : identity(who),
        config(checked(how)),
        log([this](LogLevel level, const std::string& text) { logs.push(level, text); }),
        shm(who, shm_options(config, log), doorbell),
        tcp(who, tcp_options(config, who.world_size, log)),
        engine(who, engine_options(config, who.world_size), doorbell, log) {
    engine.add_transport(shm);
    engine.add_transport(tcp);
    engine.on_alarm([this] { logs.wake(); });
  }

  const Identity identity;
  const RuntimeConfig config;
  LogQueue logs;
  const std::shared_ptr<TokenQueue> tokens = std::make_shared<TokenQueue>();
  Log log;
  Doorbell doorbell;
  ShmTransport shm;
  TcpTransport tcp;
  Engine engine;
};

bool Handle::done() const { return completion_->done(); }

bool Handle::wait(std::chrono::nanoseconds timeout) const {
  return parts_->engine.wait(*completion_, Clock::now() + timeout);
}

std::string Handle::describe() const {
  const std::string text = parts_->engine.state_of(*completion_);
  return text.empty() ? "the operation has ended in the meantime" : text;
}

void Handle::check() const {
  if (completion_->error()) throw Error(*completion_->error());
}

std::uint32_t Handle::source() const { return completion_->source(); }

Runtime::Runtime(std::uint32_t rank, std::uint32_t world_size, std::uint32_t epoch,
                 std::span<const std::byte> key, const RuntimeConfig& config)
    : parts_(std::make_shared<RuntimeParts>(identity_of(rank, world_size, epoch, key), config)) {}

Runtime::~Runtime() = default;

std::string Runtime::address() const {
  return Address{parts_->config.host_name,       parts_->config.host_id,   parts_->shm.name(),
                 settings_alike(parts_->config), place_of(parts_->config), parts_->tcp.endpoints()}
      .format();
}

void Runtime::connect(const std::vector<std::string>& addresses, std::chrono::nanoseconds timeout,
                      const std::function<void()>& look) {
  const Identity& self = parts_->identity;
  if (addresses.size() != self.world_size) {
    fail(ErrorKind::kUsage, "connect() received ", addresses.size(), " addresses for ",
         self.world_size, " ranks; pass one address for each rank");
  }
  const std::string& host_id = parts_->config.host_id;
  parts_->engine.place_rank(self.rank, parts_->config.host_name, place_of(parts_->config));
  for (std::uint32_t peer = 0; peer < self.world_size; ++peer) {
    if (peer == self.rank) continue;
    const Address address = Address::parse(peer, addresses[peer]);
    if (const std::string own = settings_alike(parts_->config); address.alike != own) {
      fail(ErrorKind::kConfig, "rank ", self.rank, " has ", words_unlike(own, address.alike),
           ", rank ", peer, " on host ", address.host_name, " has ",
           words_unlike(address.alike, own), "; set these variables alike on all ranks");
    }
    parts_->engine.place_rank(peer, address.host_name, address.place);
    if (peer > self.rank) {  // the peer dials
      parts_->tcp.know(peer, address.endpoints);
      continue;
    }
    const bool named = !host_id.empty() && !address.host_id.empty();
    const bool may_share = !named || host_id == address.host_id;
    if (may_share && parts_->shm.dial(peer, address.shm_name)) continue;
    if (named && may_share) {
      fail(
          ErrorKind::kConfig, "rank ", peer, " has the same SLIPSTREAM_HOST_ID as this rank, '",
          host_id,
          "', but this rank cannot reach its Unix socket; give ranks of different hosts or network "
          "namespaces different values");
    }
    parts_->tcp.dial(peer, address.endpoints);
  }
  parts_->engine.connect(Clock::now() + timeout, look);
}

std::vector<std::uint32_t> Runtime::local_ranks() const { return parts_->engine.local_ranks(); }

std::vector<std::pair<std::uint32_t, std::string>> Runtime::lost_ranks() const {
  return parts_->engine.lost_ranks();
}

std::shared_ptr<Group> Runtime::make_group(const std::string& name,
                                           std::vector<std::uint32_t> ranks) {
  return parts_->engine.make_group(name, std::move(ranks));
}

void Runtime::close_group(Group& group) { parts_->engine.close_group(group); }

void Runtime::abort_group(Group& group, const std::string& reason) {
  parts_->engine.abort_group(group, reason);
}

void Runtime::check_group(Group& group) {
  if (const std::optional<Error> failure = parts_->engine.failure_of(group)) throw Error(*failure);
}

Handle Runtime::submit(const std::shared_ptr<Group>& group, Request request) {
  return {parts_, parts_->engine.submit(group, std::move(request))};
}

void Runtime::tune_group(Group& group, const AllreduceTuning& tuning) {
  parts_->engine.tune_group(group, tuning);
}

std::shared_ptr<Negotiator> Runtime::make_negotiator(const std::shared_ptr<Group>& group,
                                                     const NegotiationOptions& options) {
  auto* const made = new Negotiator(parts_->engine, group, options, parts_->log);
  return {made, [parts = parts_](Negotiator* negotiator) { delete negotiator; }};
}

std::shared_ptr<DeviceGroup> Runtime::make_device_group(const std::shared_ptr<Group>& group,
                                                        const DeviceOptions& options) {
  return std::make_shared<DeviceGroup>(parts_, parts_->engine, group, options);
}

void Runtime::notify(const Handle& handle, std::uint64_t token) {
  handle.completion_->notify(parts_->tokens, token);
}

std::optional<std::uint64_t> Runtime::next_event(std::chrono::nanoseconds timeout) {
  return parts_->tokens->pop(Clock::now() + timeout);
}

std::optional<std::pair<LogLevel, std::string>> Runtime::next_log(
    std::chrono::nanoseconds timeout) {
  return parts_->logs.pop(Clock::now() + timeout);
}

Stats Runtime::stats() { return parts_->engine.stats(); }

FlightSnapshot Runtime::flight() { return parts_->engine.flight(); }

std::uint64_t Runtime::alarms() const { return parts_->engine.alarms(); }

void Runtime::keep_records(bool keep) { parts_->engine.keep_records(keep); }

std::vector<OperationRecord> Runtime::take_records() { return parts_->engine.take_records(); }

void Runtime::close() {
  parts_->engine.close();
  parts_->tokens->close();
  parts_->logs.close();
}

std::uint32_t rank_in(const Group& group) { return group.rank(); }
std::uint32_t size_of(const Group& group) { return group.size(); }
const std::string& name_of(const Group& group) { return group.name(); }
std::vector<std::uint32_t> ranks_of_host(const Group& group) {
  const Layout& layout = group.layout();
  return layout.even ? layout.local.members : std::vector<std::uint32_t>{};
}

std::vector<std::uint32_t> counterparts_of(const Group& group) {
  const Layout& layout = group.layout();
  return layout.even ? layout.hosts.members : std::vector<std::uint32_t>{};
}

std::vector<std::uint32_t> dimensions_of(const Group& group) {
  std::vector<std::uint32_t> sizes;
  for (const Dimension& each : group.layout().dimensions) sizes.push_back(each.size());
  return sizes;
}

std::string simd_target_name() { return std::string(simd_target()); }

std::string algorithm_table() { return rules_as_text(); }

}  // namespace slipstream
