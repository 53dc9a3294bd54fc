#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "module.h"
#include "slipstream/gpu.h"

namespace slipstream {

void bind_gpus(nb::module_& m) {
  nb::class_<Gpu>(m, "Gpu", "GPU, as the CUDA driver describes it.")
      .def_ro("name", &Gpu::name)
      .def_ro("memory_bytes", &Gpu::memory_bytes);
  nb::class_<GpuList>(m, "GpuList", "CUDA driver of this host, and its GPUs.")
      .def_ro("cuda_version", &GpuList::cuda_version)
      .def_ro("gpus", &GpuList::gpus);
  m.def("list_gpus", &list_gpus, nb::arg("library") = "libcuda.so.1",
        nb::call_guard<nb::gil_scoped_release>(),
        "Return the GPUs that CUDA_VISIBLE_DEVICES leaves, without using them.");
  m.def("try_gpu", &try_gpu, nb::arg("ordinal"), nb::arg("library") = "libcuda.so.1",
        nb::call_guard<nb::gil_scoped_release>(),
        "Use a GPU as collectives do, with a few bytes; raise an error if it cannot serve them.");
}

}  // namespace slipstream
