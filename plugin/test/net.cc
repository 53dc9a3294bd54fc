#include "net.h"

#include <dlfcn.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <type_traits>

namespace slipstream::nccl::test {
namespace {

struct Record {
  std::mutex mutex;
  std::string text;
};

Record& record() {
  static Record all;
  return all;
}

void log(Level /*level*/, unsigned long /*parts*/, const char* /*file*/, int /*line*/,
         const char* format, ...) {
  std::array<char, 2048> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(record().mutex);
  record().text += std::string(text.data()) + "\n";
}

template <typename Table>
constexpr bool is(int version) {
  return (version == 8 && std::is_same_v<Table, TableV8>) ||
         (version == 9 && std::is_same_v<Table, TableV9>) ||
         (version == 10 && std::is_same_v<Table, TableV10>) ||
         (version == 11 && std::is_same_v<Table, TableV11>);
}

/// The properties that all versions have, in the form of v11.
template <typename Properties>
PropertiesV11 common(const Properties& from) {
  PropertiesV11 all{};
  if constexpr (std::is_same_v<Properties, PropertiesV8>) {
    all.common.name = from.name;
    all.common.pointers = from.pointers;
    all.common.speed = from.speed;
    all.common.max_comms = from.max_comms;
    all.common.max_receives = from.max_receives;
  } else if constexpr (std::is_same_v<Properties, PropertiesV9>) {
    all.common = from;
  } else {
    all = from;
  }
  return all;
}

}  // namespace

std::string logged() {
  const std::lock_guard lock(record().mutex);
  return record().text;
}

Net::Net(int version, int threads) {
  ::setenv("SLIPSTREAM_NCCL_THREADS", std::to_string(threads).c_str(), 1);
  void* const library = ::dlopen(threads == 0 ? PLUGIN : PLUGIN_COPY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const std::string name = "ncclNetPlugin_v" + std::to_string(version);
  const void* const table = ::dlsym(library, name.c_str());
  if (table == nullptr) throw std::runtime_error(::dlerror());
  if (version == 8) bind(*static_cast<const TableV8*>(table));
  if (version == 9) bind(*static_cast<const TableV9*>(table));
  if (version == 10) bind(*static_cast<const TableV10*>(table));
  if (version == 11) bind(*static_cast<const TableV11*>(table));
}

template <typename Table>
void Net::bind(const Table& table) {
  constexpr bool kHasInt = is<Table>(8), kIsProfiled = is<Table>(10) || is<Table>(11);
  using Size = std::conditional_t<kHasInt, int, std::size_t>;
  init = [&table] {
    static void* context = nullptr;
    if constexpr (is<Table>(11)) {
      return table.init(&context, 1, nullptr, log, nullptr);
    } else if constexpr (is<Table>(10)) {
      return table.init(log, nullptr);
    } else {
      return table.init(log);
    }
  };
  devices = table.devices;
  properties = [&table](int device) {
    using Properties =
        std::conditional_t<kHasInt, PropertiesV8,
                           std::conditional_t<is<Table>(11), PropertiesV11, PropertiesV9>>;
    Properties filled{};
    table.get_properties(device, &filled);
    return common(filled);
  };
  listen = [&table](HandleBytes& handle, void** comm) {
    if constexpr (is<Table>(11)) {
      return table.listen(nullptr, 0, handle.data(), comm);
    } else {
      return table.listen(0, handle.data(), comm);
    }
  };
  connect = [&table](HandleBytes& handle, void** comm) {
    void* none = nullptr;
    if constexpr (is<Table>(11)) {
      return table.connect(nullptr, 0, handle.data(), comm, &none);
    } else if constexpr (is<Table>(10)) {
      return table.connect(0, nullptr, handle.data(), comm, &none);
    } else {
      return table.connect(0, handle.data(), comm, &none);
    }
  };
  accept = table.accept;
  register_memory = table.register_memory;
  send = [&table](void* comm, void* data, std::size_t size, void** request) {
    const auto bytes = static_cast<Size>(size);
    if constexpr (kIsProfiled) {
      return table.send(comm, data, bytes, 0, nullptr, nullptr, request);
    } else {
      return table.send(comm, data, bytes, 0, nullptr, request);
    }
  };
  const auto receive_some = [&table](void* comm, int count, void* data, std::size_t size,
                                     void** request) {
    std::array<void*, 2> places{data, data};
    std::array<Size, 2> sizes{static_cast<Size>(size), static_cast<Size>(size)};
    std::array<int, 2> tags{};
    std::array<void*, 2> none{};
    if constexpr (kIsProfiled) {
      return table.receive(comm, count, places.data(), sizes.data(), tags.data(), none.data(),
                           none.data(), request);
    } else {
      return table.receive(comm, count, places.data(), sizes.data(), tags.data(), none.data(),
                           request);
    }
  };
  receive = [=](void* comm, void* data, std::size_t size, void** request) {
    return receive_some(comm, 1, data, size, request);
  };
  receive_two = [=](void* comm, void** request) {
    return receive_some(comm, 2, nullptr, 0, request);
  };
  flush = table.flush;
  test = table.test;
  close_send = table.close_send;
  close_receive = table.close_receive;
  close_listen = table.close_listen;
}

}  // namespace slipstream::nccl::test
