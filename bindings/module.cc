#include "module.h"

NB_MODULE(_core, m) {
  // A forked child ends without destroying its parent's objects, which is not a leak.
  nanobind::set_leak_warnings(false);
  slipstream::bind_errors(m);
  slipstream::bind_dtypes(m);
  slipstream::bind_flight(m);
  slipstream::bind_arrays(m);
  slipstream::bind_arrivals(m);
  slipstream::bind_group(m);
  slipstream::bind_device_group(m);
  slipstream::bind_gpus(m);
  slipstream::bind_items(m);
  slipstream::bind_negotiation(m);
  slipstream::bind_runtime(m);
}
