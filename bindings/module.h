#pragma once

#include <nanobind/nanobind.h>

namespace slipstream {

namespace nb = nanobind;

void bind_errors(nb::module_& m);
void bind_arrays(nb::module_& m);
void bind_arrivals(nb::module_& m);
void bind_device_group(nb::module_& m);
void bind_dtypes(nb::module_& m);
void bind_flight(nb::module_& m);
void bind_gpus(nb::module_& m);
void bind_group(nb::module_& m);
void bind_items(nb::module_& m);
void bind_negotiation(nb::module_& m);
void bind_runtime(nb::module_& m);

}  // namespace slipstream
