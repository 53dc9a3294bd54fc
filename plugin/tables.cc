// The tables that NCCL looks up by name. Every function passes its arguments on, and turns
// exceptions into results, because none may leave a function that NCCL calls.

#include <cstdint>
#include <cstring>
#include <exception>
#include <utility>

#include "plugin.h"

namespace slipstream::nccl {
namespace {

constexpr char kName[] = "Slipstream";
constexpr int kMaxComms = 65536;
constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 40U;  // the most that NCCL accepts

/// Never destroyed: at exit, NCCL's threads go on calling us after the destructors of statics.
Plugin& plugin() {
  static Plugin& instance = *new Plugin;
  return instance;
}

/// Results by what NCCL's user should do: fix the environment, look at the other rank, report.
Result result_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kConfig:
      return Result::kInvalidUsage;
    case ErrorKind::kPeer:
    case ErrorKind::kPeerTimeout:
    case ErrorKind::kAuth:
      return Result::kRemoteError;
    default:
      return Result::kInternalError;
  }
}

template <typename Action>
Result guarded(Action action) noexcept {
  try {
    try {
      action();
      return Result::kSuccess;
    } catch (const Error& error) {
      plugin().log()(LogLevel::kWarning, error.what());
      return result_of(error.kind());
    } catch (const std::exception& error) {
      plugin().log()(LogLevel::kWarning, error.what());
      return Result::kInternalError;
    }
  } catch (...) {  // no memory for the message
    return Result::kSystemError;
  }
}

// ---- init and devices ----

Result init(Logger logger) {
  return guarded([&] { plugin().init(logger); });
}
Result init_v10(Logger logger, void* /*profiler*/) { return init(logger); }
Result init_v11(void** context, std::uint64_t /*communicator*/, void* /*config*/, Logger logger,
                void* /*profiler*/) {
  *context = nullptr;
  return init(logger);
}
Result finalize(void* /*context*/) { return Result::kSuccess; }

Result devices(int* count) {
  return guarded([&] { *count = plugin().num_devices(); });
}

template <typename Properties>
void fill(int number, const Device& device, Properties& properties) {
  properties.name = device.name.c_str();
  properties.pci_path = device.pci_path.empty() ? nullptr : device.pci_path.c_str();
  properties.guid = static_cast<std::uint64_t>(number);
  properties.pointers = kHostPointers;
  properties.speed = device.mbit_per_second;
  properties.max_comms = kMaxComms;
  properties.max_receives = 1;
}

Result properties_v8(int number, PropertiesV8* properties) {
  return guarded([&] {
    *properties = {};
    fill(number, plugin().device(number), *properties);
  });
}

Result properties_v9(int number, PropertiesV9* properties) {
  return guarded([&] {
    *properties = {};
    fill(number, plugin().device(number), *properties);
    properties->parts = {1, {number}};
    properties->max_message_bytes = kMaxMessageBytes;
    properties->max_collective_bytes = kMaxMessageBytes;
  });
}

Result properties_v11(int number, PropertiesV11* properties) {
  properties->max_grouped_requests = 1;
  return properties_v9(number, &properties->common);
}

// ---- connections ----

Result listen(int device, void* handle, void** listen_comm) {
  return guarded([&] {
    Handle made;
    auto listening = plugin().listen(device, made);
    std::memset(handle, 0, kHandleBytes);
    std::memcpy(handle, &made, sizeof made);
    *listen_comm = listening.release();
  });
}
Result listen_v11(void* /*context*/, int device, void* handle, void** listen_comm) {
  return listen(device, handle, listen_comm);
}

Result connect(int /*device*/, void* handle, void** send_comm, void** device_handle) {
  return guarded([&] {
    Handle known;
    std::memcpy(&known, handle, sizeof known);
    *send_comm = nullptr;
    if (device_handle != nullptr) *device_handle = nullptr;
    try {
      *send_comm = plugin().connect(known).release();
    } catch (...) {
      std::memcpy(handle, &known, sizeof known);  // it has no attempt any more
      throw;
    }
    std::memcpy(handle, &known, sizeof known);
  });
}
Result connect_v10(int device, void* /*config*/, void* handle, void** send_comm,
                   void** device_handle) {
  return connect(device, handle, send_comm, device_handle);
}
Result connect_v11(void* /*context*/, int device, void* handle, void** send_comm,
                   void** device_handle) {
  return connect(device, handle, send_comm, device_handle);
}

Result accept(void* listen_comm, void** receive_comm, void** device_handle) {
  return guarded([&] {
    *receive_comm = nullptr;
    if (device_handle != nullptr) *device_handle = nullptr;
    *receive_comm = plugin().accept(*static_cast<ListenComm*>(listen_comm)).release();
  });
}

Result close_send(void* comm) {
  return guarded([&] { plugin().close(std::unique_ptr<Comm>(static_cast<SendComm*>(comm))); });
}
Result close_receive(void* comm) {
  return guarded([&] { plugin().close(std::unique_ptr<Comm>(static_cast<RecvComm*>(comm))); });
}
Result close_listen(void* comm) {
  return guarded([&] { delete static_cast<ListenComm*>(comm); });
}

// ---- memory ----

Result register_memory(void* /*comm*/, void* /*data*/, std::size_t /*size*/, int type,
                       void** region) {
  return guarded([&] {
    *region = nullptr;
    if (type == kHostPointers) return;
    fail(ErrorKind::kUsage, "memory of type ", type, " was registered; allowed: ", kHostPointers,
         " (host memory)");
  });
}
Result deregister(void* /*comm*/, void* /*region*/) { return Result::kSuccess; }

/// Only memory of a GPU would have to be flushed.
Result flush(void* /*comm*/, int /*count*/, void** /*data*/, int* /*sizes*/, void** /*regions*/,
             void** request) {
  *request = nullptr;
  return Result::kSuccess;
}

// ---- messages ----

std::span<std::byte> memory(void* data, std::size_t size) {
  return {static_cast<std::byte*>(data), size};
}

template <typename Size>
Result send(void* comm, void* data, Size size, int /*tag*/, void* /*region*/, void** request) {
  return guarded([&] {
    auto& sender = *static_cast<SendComm*>(comm);
    *request = sender.submit(memory(data, static_cast<std::size_t>(size)));
  });
}
Result profiled_send(void* comm, void* data, std::size_t size, int tag, void* region,
                     void* /*profiled*/, void** request) {
  return send<std::size_t>(comm, data, size, tag, region, request);
}

template <typename Size>
Result receive(void* comm, int count, void** data, Size* sizes, int* /*tags*/, void** /*regions*/,
               void** request) {
  return guarded([&] {
    if (count != 1) fail(ErrorKind::kUsage, count, " receives are grouped; allowed: 1");
    auto& receiver = *static_cast<RecvComm*>(comm);
    *request = receiver.submit(memory(data[0], static_cast<std::size_t>(sizes[0])));
  });
}
Result profiled_receive(void* comm, int count, void** data, std::size_t* sizes, int* tags,
                        void** regions, void** /*profiled*/, void** request) {
  return receive<std::size_t>(comm, count, data, sizes, tags, regions, request);
}

Result test(void* request, int* done, int* sizes) {
  return guarded([&] {
    auto& tested = *static_cast<Request*>(request);
    std::size_t bytes = 0;
    *done = tested.comm->test(tested, bytes) ? 1 : 0;
    if (*done != 0 && sizes != nullptr) *sizes = static_cast<int>(bytes);
  });
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NCCL chose these names.
extern "C" {

[[gnu::visibility("default")]] extern const TableV8 ncclNetPlugin_v8;
[[gnu::visibility("default")]] extern const TableV9 ncclNetPlugin_v9;
[[gnu::visibility("default")]] extern const TableV10 ncclNetPlugin_v10;
[[gnu::visibility("default")]] extern const TableV11 ncclNetPlugin_v11;

const TableV8 ncclNetPlugin_v8{
    .name = kName,
    .init = init,
    .devices = devices,
    .get_properties = properties_v8,
    .listen = listen,
    .connect = connect,
    .accept = accept,
    .register_memory = register_memory,
    .register_dma_buf = nullptr,
    .deregister = deregister,
    .send = send<int>,
    .receive = receive<int>,
    .flush = flush,
    .test = test,
    .close_send = close_send,
    .close_receive = close_receive,
    .close_listen = close_listen,
    .device_region = nullptr,
    .consumed = nullptr,
};

const TableV9 ncclNetPlugin_v9{
    .name = kName,
    .init = init,
    .devices = devices,
    .get_properties = properties_v9,
    .listen = listen,
    .connect = connect,
    .accept = accept,
    .register_memory = register_memory,
    .register_dma_buf = nullptr,
    .deregister = deregister,
    .send = send<std::size_t>,
    .receive = receive<std::size_t>,
    .flush = flush,
    .test = test,
    .close_send = close_send,
    .close_receive = close_receive,
    .close_listen = close_listen,
    .device_region = nullptr,
    .consumed = nullptr,
    .make_virtual = nullptr,
};

const TableV10 ncclNetPlugin_v10{
    .name = kName,
    .init = init_v10,
    .devices = devices,
    .get_properties = properties_v9,
    .listen = listen,
    .connect = connect_v10,
    .accept = accept,
    .register_memory = register_memory,
    .register_dma_buf = nullptr,
    .deregister = deregister,
    .send = profiled_send,
    .receive = profiled_receive,
    .flush = flush,
    .test = test,
    .close_send = close_send,
    .close_receive = close_receive,
    .close_listen = close_listen,
    .device_region = nullptr,
    .consumed = nullptr,
    .make_virtual = nullptr,
};

const TableV11 ncclNetPlugin_v11{
    .name = kName,
    .init = init_v11,
    .devices = devices,
    .get_properties = properties_v11,
    .listen = listen_v11,
    .connect = connect_v11,
    .accept = accept,
    .register_memory = register_memory,
    .register_dma_buf = nullptr,
    .deregister = deregister,
    .send = profiled_send,
    .receive = profiled_receive,
    .flush = flush,
    .test = test,
    .close_send = close_send,
    .close_receive = close_receive,
    .close_listen = close_listen,
    .device_region = nullptr,
    .consumed = nullptr,
    .make_virtual = nullptr,
    .finalize = finalize,
    .set_attributes = nullptr,
};

}  // extern "C"
// NOLINTEND(readability-identifier-naming)

}  // namespace slipstream::nccl
