#include <nanobind/stl/shared_ptr.h>

#include "collectives_py.h"
#include "slipstream/device_group.h"

// Collectives on the memory of a GPU. Calls of the CUDA driver are made without the GIL, because
// some of them wait for streams, and a stream may wait for a rank that needs the GIL.
namespace slipstream {
namespace {

/// Gives its object up without the GIL. Python destroys objects with the GIL, but the last object
/// that uses a GPU waits for streams, and a stream may wait for a rank that needs the GIL.
template <typename T>
class WithoutGil {
 public:
  explicit WithoutGil(std::shared_ptr<T> object) : object_(std::move(object)) {}
  WithoutGil(const WithoutGil&) = default;
  WithoutGil(WithoutGil&&) noexcept = default;
  WithoutGil& operator=(const WithoutGil&) = delete;
  WithoutGil& operator=(WithoutGil&&) = delete;
  ~WithoutGil() {
    if (!object_) return;
    const nb::gil_scoped_release release;
    object_.reset();
  }

  T* operator->() const { return object_.get(); }

 private:
  std::shared_ptr<T> object_;
};

/// A device group, and the stream on which the next collectives begin.
struct PyDeviceGroup {
  WithoutGil<DeviceGroup> group;
  CudaStream stream = 0;
};

struct PyDeviceHandle {
  WithoutGil<DeviceHandle> handle;

  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout) const { return handle->wait(timeout); }
  [[nodiscard]] std::string describe() const { return handle->describe(); }
  void check() const { handle->check(); }
};

PyDeviceHandle submit(const PyDeviceGroup& group, Request&& request) {
  std::shared_ptr<DeviceHandle> made;
  {
    const nb::gil_scoped_release release;
    made = std::make_shared<DeviceHandle>(group.group->submit(request, group.stream));
  }
  return {WithoutGil(std::move(made))};
}

}  // namespace

void bind_device_group(nb::module_& m) {
  nb::class_<PyDeviceHandle>(m, "DeviceHandle", "A collective on the memory of a GPU.")
      .def(
          "wait_on",
          [](const PyDeviceHandle& self, CudaStream stream) {
            const nb::gil_scoped_release release;
            self.handle->wait_on(stream);
          },
          nb::arg("stream"),
          "Make a stream of the driver wait until the results are in the GPU's memory;"
          " return at once.")
      .def(
          "done",
          [](const PyDeviceHandle& self) {
            const nb::gil_scoped_release release;
            return self.handle->done();
          },
          "Tell whether the GPU uses the memory no more: it has the results, or has failed.")
      .def("wait", wait<PyDeviceHandle>, nb::arg("timeout") = 0.0,
           "Wait without the GIL until the engine has ended its part; raise its error, or"
           " PeerTimeoutError after `timeout` seconds (0: no limit).")
      .def("check", &PyDeviceHandle::check, "Raise the error of an operation that has failed.");

  nb::class_<PyDeviceGroup> group(m, "DeviceGroup",
                                  "Collectives of a group on the memory of one GPU.");
  group.def(
      "__init__",
      [](PyDeviceGroup* self, const PyGroup& members, int ordinal, std::uint32_t num_slots,
         std::uint64_t slot_bytes, const std::string& library) {
        std::shared_ptr<DeviceGroup> made;
        {
          const nb::gil_scoped_release release;
          made = members.runtime->make_device_group(members.group,
                                                    {ordinal, num_slots, slot_bytes, library});
        }
        new (self) PyDeviceGroup{WithoutGil(std::move(made))};
      },
      nb::arg("group"), nb::arg("ordinal"), nb::kw_only(), nb::arg("num_slots") = 8,
      nb::arg("slot_bytes") = 4 << 20, nb::arg("library") = "libcuda.so.1");
  group.def("rank", [](const PyDeviceGroup& g) { return g.group->rank(); });
  group.def("size", [](const PyDeviceGroup& g) { return g.group->size(); });
  group.def(
      "on",
      [](const PyDeviceGroup& self, CudaStream stream) {
        return PyDeviceGroup{self.group, stream};
      },
      nb::arg("stream"),
      "Return the group, with collectives that begin after all commands that a stream of the driver"
      " has when they are called.");
  group.def(
      "close",
      [](const PyDeviceGroup& self) {
        const nb::gil_scoped_release release;
        self.group->close();
      },
      "Leave the group, and block until the GPU uses no memory of its operations.");
  bind_reductions(group);
  bind_gathers(group);
  bind_exchanges(group);
}

}  // namespace slipstream
