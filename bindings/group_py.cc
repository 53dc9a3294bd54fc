#include "group_py.h"

#include "collectives_py.h"

// Operations are submitted without the GIL, because the engine may copy a small message at once.
namespace slipstream {

/// In this namespace, so that the templates find it.
static Handle submit(const PyGroup& group, Request&& request) {
  const nb::gil_scoped_release release;
  return group.runtime->submit(group.group, std::move(request));
}

namespace {

using GroupClass = nb::class_<PyGroup>;

void bind_handle(nb::module_& m) {
  nb::class_<Handle>(m, "Handle", "An operation in flight.")
      .def("done", &Handle::done, "Tell whether the operation has ended, without blocking.")
      .def("wait", wait<Handle>, nb::arg("timeout") = 0.0,
           "Wait without the GIL until the operation has ended; raise its error, or "
           "PeerTimeoutError after `timeout` seconds (0: only the operation's own "
           "limit).")
      .def("source", &Handle::source,
           "Return the sender of a received message, as rank in the group.");
}

void bind_basics(GroupClass& group) {
  group.def("rank", [](const PyGroup& g) { return rank_in(*g.group); })
      .def("size", [](const PyGroup& g) { return size_of(*g.group); })
      .def("name", [](const PyGroup& g) { return name_of(*g.group); })
      .def(
          "dimensions", [](const PyGroup& g) { return dimensions_of(*g.group); },
          "Return the sizes of the dimensions of the group's ranks, the innermost "
          "first.")
      .def(
          "ranks_of_host", [](const PyGroup& g) { return ranks_of_host(*g.group); },
          "Return the group's ranks on this host; [] if hosts have different numbers of ranks.")
      .def(
          "counterparts", [](const PyGroup& g) { return counterparts_of(*g.group); },
          "Return, of every host, the rank with this rank's position on its host; [] if hosts "
          "have different numbers of ranks.")
      .def(
          "abort",
          [](const PyGroup& g, const std::string& reason) {
            const nb::gil_scoped_release release;
            g.runtime->abort_group(*g.group, reason);
          },
          nb::arg("reason"),
          "End all operations of the group on all members; any thread may call it.")
      .def(
          "check",
          [](const PyGroup& g) {
            const nb::gil_scoped_release release;
            g.runtime->check_group(*g.group);
          },
          "Raise the error of a group that has failed. A group without operations fails as well, if"
          " a member is lost or aborts the group.")
      .def(
          "tune",
          [](const PyGroup& g, std::uint64_t direct, std::uint64_t doubling,
             std::uint32_t segment) {
            g.runtime->tune_group(*g.group, {direct, doubling, segment});
          },
          nb::kw_only(), nb::arg("direct_bytes"), nb::arg("doubling_bytes"),
          nb::arg("segment_bytes") = 0,
          "Set the largest sizes in bytes at which later allreduces use direct exchange"
          " and recursive doubling, and the segment size (0: the engine's). All members"
          " must call it between the same two operations.")
      .def(
          "close",
          [](const PyGroup& g) {
            const nb::gil_scoped_release release;
            g.runtime->close_group(*g.group);
          },
          "Leave the group; operations in flight end with AbortedError on all members.");
}

void bind_host_exchanges(GroupClass& group) {
  group
      .def(
          "all_to_all_v",
          [](const PyGroup& g, Address input, Address output, Counts send_counts,
             Counts receive_counts, DType dtype, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r =
                make(Collective::kAllToAll, input, output, 0, dtype, SLIPSTREAM_OPTION_VALUES);
            r.send_counts = std::move(send_counts);
            r.receive_counts = std::move(receive_counts);
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("send_counts"), nb::arg("receive_counts"),
          nb::arg("dtype"), SLIPSTREAM_OPTIONS)
      .def(
          "barrier",
          [](const PyGroup& g, SLIPSTREAM_OPTION_PARAMETERS) {
            return submit(
                g, make(Collective::kBarrier, 0, 0, 0, DType::kUInt8, SLIPSTREAM_OPTION_VALUES));
          },
          SLIPSTREAM_OPTIONS);
}

}  // namespace

void bind_group(nb::module_& m) {
  bind_handle(m);
  GroupClass group(m, "Group", "Set of ranks with its own sequence of operations.");
  bind_basics(group);
  bind_reductions(group);
  bind_gathers(group);
  bind_exchanges(group);
  bind_host_exchanges(group);
}

}  // namespace slipstream
