#include "options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>

#include "base/hmac.h"
#include "slipstream/error.h"
#include "transport/frame.h"

namespace slipstream::nccl {
namespace {

constexpr std::size_t kLeastKeyCharacters = 16;  // as in src/slipstream/settings/kinds.py

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename Number>
Number number(const char* name, Number low, Number high, Number otherwise) {
  const std::string text = variable(name);
  if (text.empty()) return otherwise;
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && rest == end && value >= low && value <= high) return value;
  fail(ErrorKind::kConfig, name, " is '", text, "'; allowed: a number from ", low, " to ", high);
}

std::string strip(const std::string& text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string read_key_file(const std::string& path) {
  struct stat status{};
  std::ifstream file(path);
  if (!file || ::stat(path.c_str(), &status) != 0) {
    fail(ErrorKind::kConfig, "SLIPSTREAM_KEY_FILE is '", path,
         "', which cannot be read: ", std::strerror(errno));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    fail(ErrorKind::kConfig, "SLIPSTREAM_KEY_FILE is '", path,
         "', which other users may use; allowed: use by its owner only; run chmod 600 ", path);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The key of the plugin's connections, which differs from that of the engine's.
JobKey read_key() {
  const std::string path = variable("SLIPSTREAM_KEY_FILE");
  std::string text = variable("SLIPSTREAM_JOB_KEY");
  if (!text.empty() && !path.empty()) {
    fail(ErrorKind::kConfig,
         "SLIPSTREAM_JOB_KEY and SLIPSTREAM_KEY_FILE are both set; unset one of them");
  }
  if (!path.empty()) text = read_key_file(path);
  text = strip(text);
  if (text.empty()) {
    fail(ErrorKind::kConfig,
         "there is no job key, so peers cannot be distinguished from strangers; start the ranks "
         "with `slipstream run --nccl-plugin`, which makes a key, or set SLIPSTREAM_JOB_KEY or "
         "SLIPSTREAM_KEY_FILE to the same secret on every rank");
  }
  if (text.size() < kLeastKeyCharacters) {
    fail(ErrorKind::kConfig, "the job key has ", text.size(), " characters; allowed: at least ",
         kLeastKeyCharacters);
  }
  constexpr std::string_view kPurpose = "slipstream nccl plugin";
  return hmac_sha256(std::as_bytes(std::span(text)), {std::as_bytes(std::span(kPurpose))});
}

Traffic read_traffic() {
  Traffic traffic;
  traffic.congestion = variable("SLIPSTREAM_CONGESTION");
  traffic.dscp = static_cast<std::uint8_t>(number("SLIPSTREAM_DSCP", 0, 63, 0));
  constexpr std::uint64_t kMostMbit = 1'000'000;
  const auto mbit = number<std::uint64_t>("SLIPSTREAM_PACING_MBIT", 0, kMostMbit, 0);
  traffic.bytes_per_second = mbit * 1'000'000 / 8;
  return traffic;
}

std::uint32_t read_segment_bytes(std::uint32_t otherwise) {
  const auto bytes =
      number("SLIPSTREAM_SEGMENT_BYTES", kMinSegmentBytes, kMaxSegmentBytes, otherwise);
  if (bytes % kSegmentGrain == 0) return bytes;
  fail(ErrorKind::kConfig, "SLIPSTREAM_SEGMENT_BYTES is ", bytes, "; allowed: multiples of ",
       kSegmentGrain);
}

/// The rank by torchrun or `slipstream run`, Open MPI, MPICH or Slurm.
std::optional<std::uint32_t> read_rank() {
  for (const char* const name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (!variable(name).empty()) return number<std::uint32_t>(name, 0, (1U << 31U) - 1, 0);
  }
  return std::nullopt;
}

}  // namespace

Options Options::from_environment() {
  Options options;
  options.key = read_key();
  options.interfaces = variable("SLIPSTREAM_IFACE");
  if (options.interfaces.empty()) {
    options.interfaces = variable("NCCL_SOCKET_IFNAME");
    options.interfaces_are_nccls = !options.interfaces.empty();
  }
  options.towards = variable("MASTER_ADDR");
  const auto streams = number<std::uint16_t>("SLIPSTREAM_STREAMS", 0, 64, 0);
  if (streams > 0) options.num_streams = streams;
  options.segment_bytes = read_segment_bytes(options.segment_bytes);
  options.tls = number("SLIPSTREAM_TLS", 0, 1, 0) == 1;
  options.traffic = read_traffic();
  options.connect_deadline = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(number("SLIPSTREAM_CONNECT_TIMEOUT", 0.5, 86400.0, 120.0)));
  options.num_threads = number<std::uint32_t>("SLIPSTREAM_NCCL_THREADS", 0, 16, 0);
  options.rank = read_rank();
  return options;
}

std::string name_of_this_process(const Options& options) {
  std::array<char, 64> host{};
  ::gethostname(host.data(), host.size() - 1);
  return concat(options.rank ? concat("rank ", *options.rank) : "the rank", " on ", host.data(),
                " (process ", ::getpid(), ")");
}

}  // namespace slipstream::nccl
