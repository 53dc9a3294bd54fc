#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// The binary interface between NCCL and a net plugin, in declarations of our own. The layouts were
/// read in NCCL's public headers: v8 in 2.20.5 and 2.23.4, v9 in 2.24.3, v10 in 2.26.2, v11 in
/// 2.28.3, and all of them again in 2.30.7, which translates each to its own v12. The assertions at
/// the end state the sizes and offsets that were measured there.
namespace slipstream::nccl {

enum class Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

enum class Level : int { kWarning = 2, kInfo = 3 };
constexpr unsigned long kInitAndNet = 1 | 16;  // parts of NCCL that NCCL_DEBUG_SUBSYS names

using Logger = void (*)(Level level, unsigned long parts, const char* file, int line,
                        const char* format, ...);

constexpr std::size_t kHandleBytes = 128;
constexpr std::size_t kMaxRequests = 32;  ///< of one comm, at the same time
constexpr int kHostPointers = 1;          ///< a bit of `pointers`, and the type of host memory

struct PropertiesV8 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int pointers;
  int registers_globally;
  int speed;  ///< Mbit/s
  int port;
  float latency;  ///< microseconds
  int max_comms;
  int max_receives;  ///< that one call may group
  int device_type;
  int device_version;
};

struct VirtualDevice {
  int num_devices;
  std::array<int, 4> devices;
};

struct PropertiesV9 {
  const char* name;
  const char* pci_path;
  std::uint64_t guid;
  int pointers;
  int registers_globally;
  int forces_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_receives;
  int device_type;
  int device_version;
  VirtualDevice parts;
  std::size_t max_message_bytes;
  std::size_t max_collective_bytes;
};
using PropertiesV10 = PropertiesV9;

struct PropertiesV11 {
  PropertiesV9 common;
  int max_grouped_requests;
};

/// The functions that are the same in all versions. `Size` is the type of message sizes.
using Devices = Result (*)(int* count);
template <typename Properties>
using GetProperties = Result (*)(int device, Properties* properties);
using Accept = Result (*)(void* listen_comm, void** receive_comm, void** device_handle);
using Register = Result (*)(void* comm, void* data, std::size_t size, int type, void** region);
using RegisterDmaBuf = Result (*)(void* comm, void* data, std::size_t size, int type,
                                  std::uint64_t offset, int fd, void** region);
using Deregister = Result (*)(void* comm, void* region);
using Flush = Result (*)(void* comm, int count, void** data, int* sizes, void** regions,
                         void** request);
using Test = Result (*)(void* request, int* done, int* sizes);
using Close = Result (*)(void* comm);
using DeviceRegion = Result (*)(void* comm, void* region, void** device_region);
using Consumed = Result (*)(void* comm, int count, void* request);
using MakeVirtual = Result (*)(int* device, VirtualDevice* parts);
using Listen = Result (*)(int device, void* handle, void** listen_comm);
template <typename Size>
using Send = Result (*)(void* comm, void* data, Size size, int tag, void* region, void** request);
template <typename Size>
using Receive = Result (*)(void* comm, int count, void** data, Size* sizes, int* tags,
                           void** regions, void** request);
/// The same with a handle of the profiler.
using ProfiledSend = Result (*)(void* comm, void* data, std::size_t size, int tag, void* region,
                                void* profiled, void** request);
using ProfiledReceive = Result (*)(void* comm, int count, void** data, std::size_t* sizes,
                                   int* tags, void** regions, void** profiled, void** request);

struct TableV8 {
  const char* name;
  Result (*init)(Logger logger);
  Devices devices;
  GetProperties<PropertiesV8> get_properties;
  Listen listen;
  Result (*connect)(int device, void* handle, void** send_comm, void** device_handle);
  Accept accept;
  Register register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  Send<int> send;
  Receive<int> receive;
  Flush flush;
  Test test;
  Close close_send, close_receive, close_listen;
  DeviceRegion device_region;
  Consumed consumed;
};

struct TableV9 {
  const char* name;
  Result (*init)(Logger logger);
  Devices devices;
  GetProperties<PropertiesV9> get_properties;
  Listen listen;
  Result (*connect)(int device, void* handle, void** send_comm, void** device_handle);
  Accept accept;
  Register register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  Send<std::size_t> send;
  Receive<std::size_t> receive;
  Flush flush;
  Test test;
  Close close_send, close_receive, close_listen;
  DeviceRegion device_region;
  Consumed consumed;
  MakeVirtual make_virtual;
};

struct TableV10 {
  const char* name;
  Result (*init)(Logger logger, void* profiler);
  Devices devices;
  GetProperties<PropertiesV10> get_properties;
  Listen listen;
  Result (*connect)(int device, void* config, void* handle, void** send_comm, void** device_handle);
  Accept accept;
  Register register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  ProfiledSend send;
  ProfiledReceive receive;
  Flush flush;
  Test test;
  Close close_send, close_receive, close_listen;
  DeviceRegion device_region;
  Consumed consumed;
  MakeVirtual make_virtual;
};

struct TableV11 {
  const char* name;
  Result (*init)(void** context, std::uint64_t communicator, void* config, Logger logger,
                 void* profiler);
  Devices devices;
  GetProperties<PropertiesV11> get_properties;
  Result (*listen)(void* context, int device, void* handle, void** listen_comm);
  Result (*connect)(void* context, int device, void* handle, void** send_comm,
                    void** device_handle);
  Accept accept;
  Register register_memory;
  RegisterDmaBuf register_dma_buf;
  Deregister deregister;
  ProfiledSend send;
  ProfiledReceive receive;
  Flush flush;
  Test test;
  Close close_send, close_receive, close_listen;
  DeviceRegion device_region;
  Consumed consumed;
  MakeVirtual make_virtual;
  Result (*finalize)(void* context);
  Result (*set_attributes)(void* context, void* attributes);
};

static_assert(sizeof(PropertiesV8) == 64 && sizeof(TableV8) == 152);
static_assert(offsetof(PropertiesV8, guid) == 16 && offsetof(PropertiesV8, speed) == 32);
static_assert(offsetof(PropertiesV8, latency) == 40 && offsetof(PropertiesV8, max_receives) == 48);
static_assert(offsetof(PropertiesV8, device_version) == 56);
static_assert(sizeof(PropertiesV9) == 104 && sizeof(TableV9) == 160 && sizeof(TableV10) == 160);
static_assert(offsetof(PropertiesV9, speed) == 36 && offsetof(PropertiesV9, latency) == 44);
static_assert(offsetof(PropertiesV9, max_receives) == 52);
static_assert(offsetof(PropertiesV9, device_version) == 60 && offsetof(PropertiesV9, parts) == 64);
static_assert(offsetof(PropertiesV9, max_message_bytes) == 88);
static_assert(offsetof(PropertiesV9, max_collective_bytes) == 96);
static_assert(sizeof(PropertiesV11) == 112 && sizeof(TableV11) == 176);
static_assert(offsetof(PropertiesV11, max_grouped_requests) == 104);
static_assert(offsetof(TableV11, make_virtual) == 152 && offsetof(TableV11, finalize) == 160);
static_assert(offsetof(TableV11, set_attributes) == 168);

/// What is at the same place in every table.
template <typename Table>
constexpr bool has_common_layout() {
  return offsetof(Table, listen) == 32 && offsetof(Table, connect) == 40 &&
         offsetof(Table, send) == 80 && offsetof(Table, receive) == 88 &&
         offsetof(Table, flush) == 96 && offsetof(Table, test) == 104 &&
         offsetof(Table, close_listen) == 128 && offsetof(Table, consumed) == 144;
}
static_assert(has_common_layout<TableV8>() && has_common_layout<TableV9>());
static_assert(has_common_layout<TableV10>() && has_common_layout<TableV11>());

}  // namespace slipstream::nccl
