#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attempts.h"
#include "devices.h"
#include "nccl_net.h"
#include "options.h"
#include "recv_comm.h"
#include "send_comm.h"
#include "slipstream/log.h"
#include "workers.h"

namespace slipstream::nccl {

/// A comm that listens, until accept() takes its connection.
struct ListenComm {
  std::unique_ptr<RecvComm> receiver;
  TimePoint deadline = TimePoint::max();  ///< of the connection; set by the first accept()
};

/// What all comms of the process share. There is one object (in tables.cc), because NCCL's
/// functions have no argument for it before v11.
class Plugin {
 public:
  /// Reads the environment at the first call. Throws Error(kConfig).
  void init(Logger logger);
  /// Throws Error(kUsage) before init().
  [[nodiscard]] int num_devices();
  [[nodiscard]] const Device& device(int number);

  [[nodiscard]] std::unique_ptr<ListenComm> listen(int device, Handle& handle);
  /// Goes on with the attempt in the handle; returns nullptr until it is connected.
  [[nodiscard]] std::unique_ptr<SendComm> connect(Handle& handle);
  [[nodiscard]] std::unique_ptr<RecvComm> accept(ListenComm& listening);
  void close(std::unique_ptr<Comm> comm);

  [[nodiscard]] const Log& log() const noexcept { return log_; }

 private:
  struct State {
    Options options;
    std::vector<Device> devices;
    Workers workers;
    Attempts attempts{};
  };
  State& state();

  std::mutex starting_;  // guards state_ while it is made
  std::unique_ptr<State> state_;
  std::atomic<Logger> logger_ = nullptr;
  const Log log_{[this](LogLevel level, const std::string& text) { write(level, text); }};

  void write(LogLevel level, const std::string& text) const;
};

}  // namespace slipstream::nccl
