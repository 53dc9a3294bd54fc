#include "group_py.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "slipstream/error.h"
#include "slipstream/request.h"

// Memory is passed as an address and a count. Operations are submitted without the GIL, because the
// engine may copy a small message at once.
namespace slipstream {
namespace {

using Address = std::uintptr_t;
using Counts = std::vector<std::uint64_t>;

/// The keyword arguments of every collective.
struct Options {
  std::string name;
  int priority = 0;
  double timeout = 0;
  Algorithm algorithm = Algorithm::kAuto;
  bool waits_soon = false;
};

Request make(Collective collective, Address input, Address output, std::uint64_t count, DType dtype,
             Options&& options) {
  Request request;
  request.collective = collective;
  request.input = reinterpret_cast<const void*>(input);
  request.output = reinterpret_cast<void*>(output);
  request.count = count;
  request.dtype = dtype;
  request.name = std::move(options.name);
  request.priority = options.priority;
  request.timeout = to_nanoseconds(options.timeout);
  request.algorithm = options.algorithm;
  request.waits_soon = options.waits_soon;
  return request;
}

/// Waits, and checks Python's signals now and then, so that Ctrl-C ends the wait.
void wait(const Handle& handle, double timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kSignals = std::chrono::milliseconds(100);
  const bool limited = timeout > 0;
  const Clock::time_point until = Clock::now() + to_nanoseconds(timeout);
  while (true) {
    const std::chrono::nanoseconds left = until - Clock::now();
    bool done = false;
    {
      const nb::gil_scoped_release release;
      done = handle.wait(limited ? std::min(kSignals, left) : kSignals);
    }
    // Signals first: Ctrl-C reaches all ranks, and the ranks that it ended first are gone by now.
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (done) return handle.check();
    if (limited && Clock::now() >= until) {
      fail(ErrorKind::kPeerTimeout, "wait() has reached its limit of ", timeout,
           " s: ", handle.describe(), "; call wait() again");
    }
  }
}

Handle submit(const PyGroup& group, Request&& request) {
  const nb::gil_scoped_release release;
  return group.runtime->submit(group.group, std::move(request));
}

#define SLIPSTREAM_OPTIONS                                                                \
  nb::kw_only(), nb::arg("name") = "", nb::arg("priority") = 0, nb::arg("timeout") = 0.0, \
                 nb::arg("algorithm") = Algorithm::kAuto, nb::arg("waits_soon") = false
#define SLIPSTREAM_OPTION_PARAMETERS \
  std::string name, int priority, double timeout, Algorithm algorithm, bool waits_soon
#define SLIPSTREAM_OPTION_VALUES \
  Options { std::move(name), priority, timeout, algorithm, waits_soon }

Codec codec_named(const std::string& name) {
  if (const auto codec = parse_codec(name)) return *codec;
  fail(ErrorKind::kUsage, "codec is '", name, "'; allowed: ", codec_names());
}

using GroupClass = nb::class_<PyGroup>;

void bind_handle(nb::module_& m) {
  nb::class_<Handle>(m, "Handle", "An operation in flight.")
      .def("done", &Handle::done, "Tell whether the operation has ended, without blocking.")
      .def("wait", wait, nb::arg("timeout") = 0.0,
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
          "abort",
          [](const PyGroup& g, const std::string& reason) {
            const nb::gil_scoped_release release;
            g.runtime->abort_group(*g.group, reason);
          },
          nb::arg("reason"),
          "End all operations of the group on all members; any thread may call it.")
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

void bind_reductions(GroupClass& group) {
  group
      .def(
          "allreduce",
          [](const PyGroup& g, Address input, Address output, std::uint64_t count, DType dtype,
             ReduceOp op, SLIPSTREAM_OPTION_PARAMETERS, const std::string& codec,
             Address residual) {
            Request r =
                make(Collective::kAllreduce, input, output, count, dtype, SLIPSTREAM_OPTION_VALUES);
            r.op = op;
            r.codec = codec_named(codec);
            r.residual = reinterpret_cast<float*>(residual);
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count"), nb::arg("dtype"), nb::arg("op"),
          SLIPSTREAM_OPTIONS, nb::arg("codec") = "none", nb::arg("residual") = Address{0},
          "Combine the buffers of all ranks. The codec applies only between hosts, to "
          "float32 sums and averages; `residual` is the address of `count` floats, or "
          "0.")
      .def(
          "reduce_scatter",
          [](const PyGroup& g, Address input, Address output, std::uint64_t count_per_rank,
             DType dtype, ReduceOp op, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r = make(Collective::kReduceScatter, input, output, count_per_rank, dtype,
                             SLIPSTREAM_OPTION_VALUES);
            r.op = op;
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          nb::arg("op"), SLIPSTREAM_OPTIONS)
      .def(
          "reduce",
          [](const PyGroup& g, Address input, Address output, std::uint64_t count, DType dtype,
             ReduceOp op, std::uint32_t root, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r =
                make(Collective::kReduce, input, output, count, dtype, SLIPSTREAM_OPTION_VALUES);
            r.op = op;
            r.root = root;
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count"), nb::arg("dtype"), nb::arg("op"),
          nb::arg("root"), SLIPSTREAM_OPTIONS);
}

void bind_gathers(GroupClass& group) {
  group
      .def(
          "all_gather",
          [](const PyGroup& g, Address input, Address output, std::uint64_t count_per_rank,
             DType dtype, SLIPSTREAM_OPTION_PARAMETERS) {
            return submit(g, make(Collective::kAllGather, input, output, count_per_rank, dtype,
                                  SLIPSTREAM_OPTION_VALUES));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          SLIPSTREAM_OPTIONS)
      .def(
          "all_gather_v",
          [](const PyGroup& g, Address input, Address output, Counts counts, DType dtype,
             SLIPSTREAM_OPTION_PARAMETERS) {
            Request r =
                make(Collective::kAllGather, input, output, 0, dtype, SLIPSTREAM_OPTION_VALUES);
            r.receive_counts = std::move(counts);
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("counts"), nb::arg("dtype"),
          SLIPSTREAM_OPTIONS)
      .def(
          "gather",
          [](const PyGroup& g, Address input, Address output, std::uint64_t count_per_rank,
             DType dtype, std::uint32_t root, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r = make(Collective::kGather, input, output, count_per_rank, dtype,
                             SLIPSTREAM_OPTION_VALUES);
            r.root = root;
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          nb::arg("root"), SLIPSTREAM_OPTIONS)
      .def(
          "scatter",
          [](const PyGroup& g, Address input, Address output, std::uint64_t count_per_rank,
             DType dtype, std::uint32_t root, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r = make(Collective::kScatter, input, output, count_per_rank, dtype,
                             SLIPSTREAM_OPTION_VALUES);
            r.root = root;
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          nb::arg("root"), SLIPSTREAM_OPTIONS)
      .def(
          "broadcast",
          [](const PyGroup& g, Address data, std::uint64_t count, DType dtype, std::uint32_t root,
             SLIPSTREAM_OPTION_PARAMETERS) {
            Request r =
                make(Collective::kBroadcast, data, data, count, dtype, SLIPSTREAM_OPTION_VALUES);
            r.root = root;
            return submit(g, std::move(r));
          },
          nb::arg("data"), nb::arg("count"), nb::arg("dtype"), nb::arg("root"), SLIPSTREAM_OPTIONS);
}

void bind_exchanges(GroupClass& group) {
  group
      .def(
          "all_to_all",
          [](const PyGroup& g, Address input, Address output, std::uint64_t count_per_rank,
             DType dtype, SLIPSTREAM_OPTION_PARAMETERS) {
            return submit(g, make(Collective::kAllToAll, input, output, count_per_rank, dtype,
                                  SLIPSTREAM_OPTION_VALUES));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          SLIPSTREAM_OPTIONS)
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
          SLIPSTREAM_OPTIONS)
      .def(
          "send",
          [](const PyGroup& g, Address data, std::uint64_t count, DType dtype, std::uint32_t peer,
             std::uint32_t tag, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r = make(Collective::kSend, data, 0, count, dtype, SLIPSTREAM_OPTION_VALUES);
            r.root = peer;
            r.tag = tag;
            return submit(g, std::move(r));
          },
          nb::arg("data"), nb::arg("count"), nb::arg("dtype"), nb::arg("peer"), nb::arg("tag") = 0,
          SLIPSTREAM_OPTIONS)
      .def(
          "recv",
          [](const PyGroup& g, Address data, std::uint64_t count, DType dtype, std::int64_t peer,
             std::uint32_t tag, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r = make(Collective::kReceive, 0, data, count, dtype, SLIPSTREAM_OPTION_VALUES);
            r.root = peer < 0 ? kAnyPeer : static_cast<std::uint32_t>(peer);
            r.tag = tag;
            return submit(g, std::move(r));
          },
          nb::arg("data"), nb::arg("count"), nb::arg("dtype"), nb::arg("peer"), nb::arg("tag") = 0,
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
}

}  // namespace slipstream
