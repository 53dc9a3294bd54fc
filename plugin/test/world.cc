#include "world.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace slipstream::nccl::test {
namespace {

constexpr std::size_t kMostNoise = std::size_t{64} << 20U;

}  // namespace

std::string as_hex(const HandleBytes& handle) {
  std::string text;
  for (const std::byte byte : handle) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", std::to_integer<unsigned>(byte));
    text += digits.data();
  }
  return text;
}

HandleBytes from_hex(const std::string& text) {
  HandleBytes handle{};
  for (std::size_t i = 0; i < handle.size() && 2 * i + 1 < text.size(); ++i) {
    handle[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

bool until(const std::function<bool()>& step) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < deadline) {
    if (step()) return true;
  }
  ADD_FAILURE() << "nothing happened for 30 s; the plugin logged:\n" << logged();
  return false;
}

Pair::Pair(const Net& net) : net_(net) {
  HandleBytes handle{};
  void* listening = nullptr;
  EXPECT_EQ(net.listen(handle, &listening), Result::kSuccess);
  port_ = port_of(handle);
  until([&] {
    if (sender_ == nullptr) {
      EXPECT_EQ(net_.connect(handle, &sender_), Result::kSuccess);
    }
    if (receiver_ == nullptr) {
      EXPECT_EQ(net_.accept(listening, &receiver_, nullptr), Result::kSuccess);
    }
    return sender_ != nullptr && receiver_ != nullptr;
  });
  EXPECT_EQ(net.close_listen(listening), Result::kSuccess);
}

Pair::~Pair() {
  close_sender();
  close_receiver();
}

void Pair::close_sender() {
  if (sender_ != nullptr) {
    EXPECT_EQ(net_.close_send(sender_), Result::kSuccess);
  }
  sender_ = nullptr;
}

void Pair::close_receiver() {
  if (receiver_ != nullptr) {
    EXPECT_EQ(net_.close_receive(receiver_), Result::kSuccess);
  }
  receiver_ = nullptr;
}

void* Pair::send(std::span<const std::byte> data) const {
  void* request = nullptr;
  EXPECT_EQ(net_.send(sender_, const_cast<std::byte*>(data.data()), data.size(), &request),
            Result::kSuccess);
  return request;
}

void* Pair::receive(std::span<std::byte> data) const {
  void* request = nullptr;
  EXPECT_EQ(net_.receive(receiver_, data.data(), data.size(), &request), Result::kSuccess);
  return request;
}

void Pair::exchange(std::span<const std::byte> data, std::size_t room) const {
  std::vector<std::byte> received(room);
  const std::vector<int> bytes = finish(net_, {receive(received), send(data)});
  EXPECT_EQ(bytes, std::vector<int>(2, static_cast<int>(data.size())));
  EXPECT_TRUE(same(std::span(received).first(data.size()), data));
}

Tested test_once(const Net& net, void* request) {
  Tested tested;
  int done = 0;
  tested.result = net.test(request, &done, &tested.bytes);
  EXPECT_EQ(tested.result, Result::kSuccess) << logged();
  tested.done = done != 0;
  return tested;
}

std::vector<int> finish(const Net& net, const std::vector<void*>& requests) {
  std::vector<Tested> tested(requests.size());
  until([&] {
    bool all = true;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!tested[i].done) tested[i] = test_once(net, requests[i]);
      all = all && (tested[i].done || tested[i].result != Result::kSuccess);
    }
    return all;
  });
  std::vector<int> bytes;
  for (const Tested& each : tested) bytes.push_back(each.bytes);
  return bytes;
}

Result wait_for_failure(const Net& net, void* request, const std::vector<void*>& others) {
  Result result{};
  until([&] {
    int done = 0;
    for (void* const other : others) net.test(other, &done, nullptr);
    result = net.test(request, &done, nullptr);
    EXPECT_EQ(done, 0);
    return result != Result::kSuccess;
  });
  return result;
}

std::span<const std::byte> noise(std::size_t bytes, std::size_t offset) {
  static const std::vector<std::byte> all = [] {
    std::vector<std::byte> made(kMostNoise);
    std::uint64_t state = 1;
    for (std::size_t i = 0; i < made.size(); i += sizeof state) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      std::memcpy(made.data() + i, &state, sizeof state);
    }
    return made;
  }();
  return std::span(all).subspan(offset, bytes);
}

bool same(std::span<const std::byte> left, std::span<const std::byte> right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

std::uint16_t port_of(const HandleBytes& handle) {
  Handle known;
  std::memcpy(&known, handle.data(), sizeof known);
  return known.endpoints[0].port;
}

std::vector<int> sockets_to(std::uint16_t port) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) {
      found.push_back(fd);
    }
  }
  std::ranges::sort(found);
  return found;
}

Process::Process(const std::string& role, const HandleBytes* handle,
                 const std::vector<std::string>& environment) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::vector<std::string> variables = environment;
  for (char** each = ::environ; *each != nullptr; ++each) variables.emplace_back(*each);
  if (handle != nullptr) variables.push_back("TEST_HANDLE=" + as_hex(*handle));
  std::vector<char*> pointers;
  for (std::string& each : variables) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  std::string program = "/proc/self/exe", flag = "--peer", copy = role;
  std::array<char*, 4> arguments{program.data(), flag.data(), copy.data(), nullptr};
  EXPECT_EQ(
      ::posix_spawn(&id_, program.c_str(), &actions, nullptr, arguments.data(), pointers.data()),
      0);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  output_ = ends[0];
}

Process::~Process() {
  if (id_ > 0) {
    kill();
    wait();
  }
  ::close(output_);
}

std::string Process::read_line() const {
  std::string line;
  char letter = 0;
  while (::read(output_, &letter, 1) == 1 && letter != '\n') line += letter;
  return line;
}

HandleBytes Process::read_handle() const { return from_hex(read_line()); }

void Process::kill() const { ::kill(id_, SIGKILL); }

void Process::stop() const { ::kill(id_, SIGSTOP); }

void Process::go_on() const { ::kill(id_, SIGCONT); }

int Process::wait(const std::function<void()>& step) {
  int status = 0;
  until([&] {
    step();
    return ::waitpid(id_, &status, WNOHANG) == id_;
  });
  id_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace slipstream::nccl::test
