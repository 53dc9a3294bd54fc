#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "handle.h"
#include "nccl_net.h"

namespace slipstream::nccl::test {

using HandleBytes = std::array<std::byte, kHandleBytes>;

/// A plugin that was opened as NCCL opens it, driven through the table of one version.
class Net {
 public:
  /// `threads` is 0, or the number of worker threads, with which a copy of the plugin is opened.
  /// Throws std::runtime_error if the library or the table is missing.
  explicit Net(int version, int threads = 0);

  std::function<Result()> init;
  Devices devices = nullptr;
  std::function<PropertiesV11(int)> properties;
  std::function<Result(HandleBytes&, void**)> listen;
  std::function<Result(HandleBytes&, void**)> connect;
  Accept accept = nullptr;
  Register register_memory = nullptr;
  std::function<Result(void*, void*, std::size_t, void**)> send;
  std::function<Result(void*, void*, std::size_t, void**)> receive;
  std::function<Result(void*, void**)> receive_two;  ///< grouped, which is not allowed
  Flush flush = nullptr;
  Test test = nullptr;
  Close close_send = nullptr, close_receive = nullptr, close_listen = nullptr;

 private:
  template <typename Table>
  void bind(const Table& table);
};

/// Everything that the plugin has logged in this process.
std::string logged();

}  // namespace slipstream::nccl::test
