// What the other process of a test does.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "world.h"

namespace slipstream::nccl::test {
namespace {

constexpr std::size_t kMessageBytes = std::size_t{64} << 20U;

/// Opens more connections than the limit of files at first allows.
int open_many(const Net& net) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 8; ++i) pairs.push_back(std::make_unique<Pair>(net));
  return testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}

/// Exits while another thread uses the plugin, as NCCL's threads do when a program ends without
/// destroying its communicators. The statics of the plugin are destroyed before `Late`.
[[noreturn]] void exit_early(const Net& net) {
  std::thread([&net] {
    int count = 0;
    while (net.devices(&count) == Result::kSuccess) {
    }
    ::_exit(9);
  }).detach();
  std::exit(0);
}

struct Late {
  ~Late() { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }
};

}  // namespace

int play(const std::string& role) {
  static const Late late;  // older than the plugin
  if (role == "open many") {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  const char* const threads = std::getenv("SLIPSTREAM_NCCL_THREADS");
  const Net net(11, threads == nullptr ? 0 : std::atoi(threads));
  if (net.init() != Result::kSuccess) {
    std::cout << logged() << std::flush;
    return 3;
  }
  if (role == "open many") return open_many(net);
  if (role == "exit early") exit_early(net);
  void* listening = nullptr;
  void* comm = nullptr;
  void* request = nullptr;
  auto result = Result::kSuccess;
  if (role == "send") {
    HandleBytes handle = from_hex(std::getenv("TEST_HANDLE"));
    while (comm == nullptr && result == Result::kSuccess) result = net.connect(handle, &comm);
    if (result != Result::kSuccess) {
      std::cout << logged() << std::flush;
      return 1;
    }
    auto* const data = const_cast<std::byte*>(noise(kMessageBytes).data());
    net.send(comm, data, 1, &request);
    net.send(comm, data, kMessageBytes, &request);
  } else {
    HandleBytes handle{};
    net.listen(handle, &listening);
    std::cout << as_hex(handle) << std::endl;
    while (comm == nullptr) net.accept(listening, &comm, nullptr);
    static std::vector<std::byte> room(kMessageBytes);
    net.receive(comm, room.data(), room.size(), &request);
    std::cout << "posted" << std::endl;
  }
  int done = 0;
  while (result == Result::kSuccess && done == 0) result = net.test(request, &done, nullptr);
  if (listening == nullptr) {
    net.close_send(comm);
  } else {
    net.close_receive(comm);
    net.close_listen(listening);
  }
  return result == Result::kSuccess ? 0 : 2;
}

}  // namespace slipstream::nccl::test
