#pragma once

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "group_py.h"
#include "slipstream/error.h"
#include "slipstream/request.h"

// The collectives of every class that has a function submit(const Class&, Request&&). Memory is
// passed as an address and a count.
namespace slipstream {

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

inline Request make(Collective collective, Address input, Address output, std::uint64_t count,
                    DType dtype, Options&& options) {
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

#define SLIPSTREAM_OPTIONS                                                                \
  nb::kw_only(), nb::arg("name") = "", nb::arg("priority") = 0, nb::arg("timeout") = 0.0, \
                 nb::arg("algorithm") = Algorithm::kAuto, nb::arg("waits_soon") = false
#define SLIPSTREAM_OPTION_PARAMETERS \
  std::string name, int priority, double timeout, Algorithm algorithm, bool waits_soon
#define SLIPSTREAM_OPTION_VALUES \
  Options { std::move(name), priority, timeout, algorithm, waits_soon }

/// Waits, and checks Python's signals now and then, so that Ctrl-C ends the wait.
template <typename H>
void wait(const H& handle, double timeout) {
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

inline Codec codec_named(const std::string& name) {
  if (const auto codec = parse_codec(name)) return *codec;
  fail(ErrorKind::kUsage, "codec is '", name, "'; allowed: ", codec_names());
}

template <typename G>
void bind_reductions(nb::class_<G>& group) {
  group
      .def(
          "allreduce",
          [](const G& g, Address input, Address output, std::uint64_t count, DType dtype,
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
          [](const G& g, Address input, Address output, std::uint64_t count_per_rank, DType dtype,
             ReduceOp op, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r = make(Collective::kReduceScatter, input, output, count_per_rank, dtype,
                             SLIPSTREAM_OPTION_VALUES);
            r.op = op;
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          nb::arg("op"), SLIPSTREAM_OPTIONS)
      .def(
          "reduce",
          [](const G& g, Address input, Address output, std::uint64_t count, DType dtype,
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

template <typename G>
void bind_gathers(nb::class_<G>& group) {
  group
      .def(
          "all_gather",
          [](const G& g, Address input, Address output, std::uint64_t count_per_rank, DType dtype,
             SLIPSTREAM_OPTION_PARAMETERS) {
            return submit(g, make(Collective::kAllGather, input, output, count_per_rank, dtype,
                                  SLIPSTREAM_OPTION_VALUES));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          SLIPSTREAM_OPTIONS)
      .def(
          "all_gather_v",
          [](const G& g, Address input, Address output, Counts counts, DType dtype,
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
          [](const G& g, Address input, Address output, std::uint64_t count_per_rank, DType dtype,
             std::uint32_t root, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r = make(Collective::kGather, input, output, count_per_rank, dtype,
                             SLIPSTREAM_OPTION_VALUES);
            r.root = root;
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          nb::arg("root"), SLIPSTREAM_OPTIONS)
      .def(
          "scatter",
          [](const G& g, Address input, Address output, std::uint64_t count_per_rank, DType dtype,
             std::uint32_t root, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r = make(Collective::kScatter, input, output, count_per_rank, dtype,
                             SLIPSTREAM_OPTION_VALUES);
            r.root = root;
            return submit(g, std::move(r));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          nb::arg("root"), SLIPSTREAM_OPTIONS)
      .def(
          "broadcast",
          [](const G& g, Address data, std::uint64_t count, DType dtype, std::uint32_t root,
             SLIPSTREAM_OPTION_PARAMETERS) {
            Request r =
                make(Collective::kBroadcast, data, data, count, dtype, SLIPSTREAM_OPTION_VALUES);
            r.root = root;
            return submit(g, std::move(r));
          },
          nb::arg("data"), nb::arg("count"), nb::arg("dtype"), nb::arg("root"), SLIPSTREAM_OPTIONS);
}

template <typename G>
void bind_exchanges(nb::class_<G>& group) {
  group
      .def(
          "all_to_all",
          [](const G& g, Address input, Address output, std::uint64_t count_per_rank, DType dtype,
             SLIPSTREAM_OPTION_PARAMETERS) {
            return submit(g, make(Collective::kAllToAll, input, output, count_per_rank, dtype,
                                  SLIPSTREAM_OPTION_VALUES));
          },
          nb::arg("input"), nb::arg("output"), nb::arg("count_per_rank"), nb::arg("dtype"),
          SLIPSTREAM_OPTIONS)
      .def(
          "send",
          [](const G& g, Address data, std::uint64_t count, DType dtype, std::uint32_t peer,
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
          [](const G& g, Address data, std::uint64_t count, DType dtype, std::int64_t peer,
             std::uint32_t tag, SLIPSTREAM_OPTION_PARAMETERS) {
            Request r = make(Collective::kReceive, 0, data, count, dtype, SLIPSTREAM_OPTION_VALUES);
            r.root = peer < 0 ? kAnyPeer : static_cast<std::uint32_t>(peer);
            r.tag = tag;
            return submit(g, std::move(r));
          },
          nb::arg("data"), nb::arg("count"), nb::arg("dtype"), nb::arg("peer"), nb::arg("tag") = 0,
          SLIPSTREAM_OPTIONS);
}

}  // namespace slipstream
