#include <nanobind/stl/shared_ptr.h>

#include "collectives_py.h"
#include "slipstream/device_group.h"

// Collectives on the memory of a GPU. Calls of the CUDA driver are made without the GIL, because
// some of them wait for streams, and a stream may wait for a rank that needs the GIL.
namespace slipstream {
namespace {

/// A device group, and the stream on which the next collectives begin.
struct PyDeviceGroup {
  std::shared_ptr<DeviceGroup> group;
  CudaStream stream = 0;
};

DeviceHandle submit(const PyDeviceGroup& group, Request&& request) {
  const nb::gil_scoped_release release;
  return group.group->submit(request, group.stream);
}

}  // namespace

void bind_device_group(nb::module_& m) {
  nb::class_<DeviceHandle>(m, "DeviceHandle", "A collective on the memory of a GPU.")
      .def(
          "wait_on",
          [](const DeviceHandle& handle, CudaStream stream) {
            const nb::gil_scoped_release release;
            handle.wait_on(stream);
          },
          nb::arg("stream"),
          "Make a stream of the driver wait until the results are in the GPU's memory;"
          " return at once.")
      .def("done", &DeviceHandle::done, nb::call_guard<nb::gil_scoped_release>(),
           "Tell whether the GPU uses the memory no more: it has the results, or has failed.")
      .def("wait", wait<DeviceHandle>, nb::arg("timeout") = 0.0,
           "Wait without the GIL until the engine has ended its part; raise its error, or"
           " PeerTimeoutError after `timeout` seconds (0: no limit).")
      .def("check", &DeviceHandle::check, "Raise the error of an operation that has failed.");

  nb::class_<PyDeviceGroup> group(m, "DeviceGroup",
                                  "Collectives of a group on the memory of one GPU.");
  group.def(
      "__init__",
      [](PyDeviceGroup* self, const PyGroup& members, int ordinal, std::uint32_t num_slots,
         std::uint64_t slot_bytes, const std::string& library) {
        const nb::gil_scoped_release release;
        new (self) PyDeviceGroup{members.runtime->make_device_group(
            members.group, {ordinal, num_slots, slot_bytes, library})};
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
