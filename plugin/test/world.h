#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "net.h"

namespace slipstream::nccl::test {

/// Calls `step` until it returns true; fails the test after half a minute.
bool until(const std::function<bool()>& step);

/// Both ends of one connection in this process.
class Pair {
 public:
  explicit Pair(const Net& net);
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair();

  [[nodiscard]] void* send(std::span<const std::byte> data) const;
  [[nodiscard]] void* receive(std::span<std::byte> data) const;
  /// Sends a message, receives it, and compares it.
  void exchange(std::span<const std::byte> data, std::size_t room) const;
  void close_sender();
  void close_receiver();
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  const Net& net_;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
  std::uint16_t port_ = 0;
};

/// The state of a request after a call of test().
struct Tested {
  Result result{};
  bool done = false;
  int bytes = -1;
};
Tested test_once(const Net& net, void* request);
/// Tests requests until all are done; returns their bytes.
std::vector<int> finish(const Net& net, const std::vector<void*>& requests);
/// Tests a request until it fails; returns the result. Tests `others` too, as NCCL tests all that
/// are open: a request that is submitted while a worker drives its comm is taken at the next call.
Result wait_for_failure(const Net& net, void* request, const std::vector<void*>& others = {});

/// The first `bytes` of 64 MiB of noise, from `offset` on.
std::span<const std::byte> noise(std::size_t bytes, std::size_t offset = 0);

/// Compares all bytes at once, because the thread sanitizer takes long for single ones.
bool same(std::span<const std::byte> left, std::span<const std::byte> right);

/// A handle as a text, for another process.
std::string as_hex(const HandleBytes& handle);
HandleBytes from_hex(const std::string& text);

/// The port of a handle's first endpoint.
std::uint16_t port_of(const HandleBytes& handle);
/// The sockets of this process that are connected to a port.
std::vector<int> sockets_to(std::uint16_t port);

/// Another process with the plugin, which runs this program with `--peer role`.
class Process {
 public:
  /// `handle` is empty for roles that listen; they print their handle. `environment` is added.
  Process(const std::string& role, const HandleBytes* handle,
          const std::vector<std::string>& environment = {});
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  [[nodiscard]] std::string read_line() const;
  [[nodiscard]] HandleBytes read_handle() const;
  void kill() const;
  /// Stops the process as a debugger or an exhausted laptop does, until it is told to go on.
  void stop() const;
  void go_on() const;
  /// Calls `step` until the process has ended; returns the exit code, or -1 after a signal.
  int wait(const std::function<void()>& step = [] {});
  [[nodiscard]] int id() const { return id_; }

 private:
  int id_ = -1;
  int output_ = -1;
};

/// The other side of Process (roles.cc): plays the role, and returns the exit code.
int play(const std::string& role);

}  // namespace slipstream::nccl::test
