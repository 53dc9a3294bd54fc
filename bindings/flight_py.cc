#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "group_py.h"
#include "module.h"
#include "slipstream/end_signal.h"
#include "slipstream/flight.h"

// What flight records contain of the engine, and the delay of a signal that ends the process.
namespace slipstream {
namespace {

void bind_operation(nb::module_& m) {
  nb::class_<OperationRecord>(m, "OperationRecord",
                              "An operation; times are in nanoseconds of the steady clock, 0 for "
                              "moments that have not come.")
      .def_prop_ro("collective",
                   [](const OperationRecord& r) { return std::string(name_of(r.collective)); })
      .def_prop_ro("dtype", [](const OperationRecord& r) { return std::string(name_of(r.dtype)); })
      .def_prop_ro("state", [](const OperationRecord& r) { return std::string(name_of(r.state)); })
      .def_ro("name", &OperationRecord::name)
      .def_ro("group", &OperationRecord::group)
      .def_ro("sequence", &OperationRecord::sequence)
      .def_ro("bytes", &OperationRecord::bytes)
      .def_ro("submitted", &OperationRecord::submitted)
      .def_ro("started", &OperationRecord::started)
      .def_ro("completed", &OperationRecord::completed)
      .def_ro("error", &OperationRecord::error)
      .def_ro("absent", &OperationRecord::absent)
      .def_ro("missing", &OperationRecord::missing);
}

void bind_parts(nb::module_& m) {
  nb::class_<FlightEvent>(m, "FlightEvent", "An event that may explain a failure.")
      .def_prop_ro("kind", [](const FlightEvent& e) { return std::string(name_of(e.kind)); })
      .def_ro("at", &FlightEvent::at)
      .def_prop_ro(
          "rank",
          [](const FlightEvent& e) -> std::int64_t { return e.rank == kNoRank ? -1 : e.rank; },
          "Return the other rank, or -1.")
      .def_ro("group", &FlightEvent::group)
      .def_ro("sequence", &FlightEvent::sequence)
      .def_ro("text", &FlightEvent::text);
  nb::class_<FlightPeer>(m, "FlightPeer", "Another rank, as this rank sees it.")
      .def_ro("rank", &FlightPeer::rank)
      .def_ro("host", &FlightPeer::host)
      .def_ro("connection", &FlightPeer::connection)
      .def_ro("state", &FlightPeer::state)
      .def_ro("why", &FlightPeer::why)
      .def_ro("ended", &FlightPeer::ended)
      .def_ro("heard", &FlightPeer::heard)
      .def_ro("streams", &FlightPeer::streams)
      .def_ro("streams_alive", &FlightPeer::streams_alive)
      .def_ro("bytes_sent", &FlightPeer::bytes_sent)
      .def_ro("bytes_received", &FlightPeer::bytes_received);
  nb::class_<FlightGroup>(m, "FlightGroup", "A group and how far its members are.")
      .def_ro("name", &FlightGroup::name)
      .def_ro("ranks", &FlightGroup::ranks)
      .def_ro("started", &FlightGroup::started)
      .def_ro("submitted", &FlightGroup::submitted)
      .def_ro("failure", &FlightGroup::failure);
}

void bind_end_signal(nb::module_& m) {
  m.def(
      "delay_end_by_signal",
      [](int number, double grace) { return delay_end_by_signal(number, to_nanoseconds(grace)); },
      nb::arg("number"), nb::arg("grace"),
      "Delay the end of this process by a signal for at most `grace` seconds. Return a descriptor"
      " that becomes readable when the signal arrives, or -1 if the signal has another disposition"
      " than the default one.");
  m.def("end_by_signal", end_by_signal, nb::arg("number"),
        "End this process by a signal, as if nothing had been caught.");
}

}  // namespace

void bind_flight(nb::module_& m) {
  bind_operation(m);
  bind_parts(m);
  nb::class_<FlightSnapshot>(m, "FlightSnapshot",
                             "State of an engine, with its last operations and events.")
      .def_ro("rank", &FlightSnapshot::rank)
      .def_ro("world_size", &FlightSnapshot::world_size)
      .def_ro("epoch", &FlightSnapshot::epoch)
      .def_ro("at", &FlightSnapshot::at)
      .def_ro("ended_operations", &FlightSnapshot::ended_operations)
      .def_ro("operations", &FlightSnapshot::operations)
      .def_ro("events", &FlightSnapshot::events)
      .def_ro("peers", &FlightSnapshot::peers)
      .def_ro("groups", &FlightSnapshot::groups);
  bind_end_signal(m);
}

}  // namespace slipstream
