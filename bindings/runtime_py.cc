#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "group_py.h"
#include "module.h"
#include "slipstream/runtime.h"

namespace slipstream {
namespace {

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

void bind_config(nb::module_& m) {
  nb::class_<RuntimeConfig>(m, "Config", "Options of a runtime; times are in seconds.")
      .def(
          "__init__",
          [](RuntimeConfig* self, std::vector<std::string> bind, std::string host_name,
             std::string host_id, std::string rack, std::vector<std::uint32_t> dimensions,
             std::uint16_t streams, std::uint16_t first_streams, bool tls, std::string congestion,
             std::uint8_t dscp, std::uint64_t pacing_bytes, std::uint64_t segment_bytes,
             std::uint64_t eager_bytes, double connect_timeout, double peer_timeout,
             double stall_after, double timeout, const std::string& algorithm) {
            new (self) RuntimeConfig;
            self->bind = std::move(bind);
            self->host_name = std::move(host_name);
            self->host_id = std::move(host_id);
            self->rack = std::move(rack);
            self->dimensions = std::move(dimensions);
            self->streams = streams;
            self->first_streams = first_streams;
            self->tls = tls;
            self->congestion = std::move(congestion);
            self->dscp = dscp;
            self->pacing_bytes = pacing_bytes;
            self->segment_bytes = segment_bytes;
            self->eager_bytes = eager_bytes;
            self->connect_timeout = to_nanoseconds(connect_timeout);
            self->peer_timeout = to_nanoseconds(peer_timeout);
            self->stall_after = to_nanoseconds(stall_after);
            self->operation_timeout = to_nanoseconds(timeout);
            self->algorithm = algorithm_named(algorithm);
          },
          nb::kw_only(), nb::arg("bind") = std::vector<std::string>{"127.0.0.1"},
          nb::arg("host_name") = "", nb::arg("host_id") = "", nb::arg("rack") = "",
          nb::arg("dimensions") = std::vector<std::uint32_t>{}, nb::arg("streams") = 0,
          nb::arg("first_streams") = 0, nb::arg("tls") = false, nb::arg("congestion") = "",
          nb::arg("dscp") = 0, nb::arg("pacing_bytes") = 0, nb::arg("segment_bytes") = 131072,
          nb::arg("eager_bytes") = 8192, nb::arg("connect_timeout") = 120.0,
          nb::arg("peer_timeout") = 5.0, nb::arg("stall_after") = 60.0, nb::arg("timeout") = 1800.0,
          nb::arg("algorithm") = "auto");
}

void bind_stats(nb::module_& m) {
  nb::class_<Stats>(m, "Stats", "Counters since the runtime was created; bytes include headers.")
      .def_ro("operations", &Stats::operations)
      .def_ro("failed_operations", &Stats::failed_operations)
      .def_ro("network_bytes_sent", &Stats::network_bytes_sent)
      .def_ro("network_bytes_received", &Stats::network_bytes_received)
      .def_ro("shm_bytes_sent", &Stats::shm_bytes_sent)
      .def_ro("shm_bytes_received", &Stats::shm_bytes_received)
      .def_ro("segments_sent_again", &Stats::segments_sent_again)
      .def_ro("streams_lost", &Stats::streams_lost)
      .def_ro("streams_reopened", &Stats::streams_reopened)
      .def_ro("streams", &Stats::streams)
      .def_ro("stalls_reported", &Stats::stalls_reported)
      .def_ro("busy_nanoseconds", &Stats::busy_nanoseconds)
      .def_ro("blocked_nanoseconds", &Stats::blocked_nanoseconds)
      .def_ro("last_submit_nanoseconds", &Stats::last_submit_nanoseconds)
      .def_ro("last_complete_nanoseconds", &Stats::last_complete_nanoseconds);
}

/// For a thread that blocks without the GIL: throws the exception of a signal handler.
void check_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

using RuntimeClass = nb::class_<Runtime>;

void bind_life(RuntimeClass& runtime) {
  runtime
      .def(
          "__init__",
          [](Runtime* self, std::uint32_t rank, std::uint32_t world_size, std::uint32_t epoch,
             const nb::bytes& key, const RuntimeConfig& config) {
            const auto* bytes = static_cast<const std::byte*>(key.data());
            new (self) Runtime(rank, world_size, epoch, {bytes, key.size()}, config);
          },
          nb::kw_only(), nb::arg("rank"), nb::arg("world_size"), nb::arg("epoch") = 0,
          nb::arg("key"), nb::arg("config") = RuntimeConfig{})
      .def(
          "address", [](const Runtime& r) { return to_bytes(r.address()); },
          "Return the address at which peers reach this rank.")
      .def(
          "connect",
          [](Runtime& r, const std::vector<nb::bytes>& addresses, double timeout) {
            std::vector<std::string> texts;
            for (const nb::bytes& each : addresses) texts.emplace_back(each.c_str(), each.size());
            const nb::gil_scoped_release release;
            r.connect(texts, to_nanoseconds(timeout), check_signals);
          },
          nb::arg("addresses"), nb::arg("timeout"),
          "Connect to all ranks, with one address for each rank; block without the GIL.")
      .def("local_ranks", &Runtime::local_ranks, "Return the ranks of this host, in order.")
      .def(
          "lost_ranks",
          [](const Runtime& r) {
            const nb::gil_scoped_release release;
            return r.lost_ranks();
          },
          "Return (rank, reason) for every rank that is lost or has left.")
      .def(
          "group",
          [](const std::shared_ptr<Runtime>& r, const std::string& name,
             std::vector<std::uint32_t> ranks) {
            const nb::gil_scoped_release release;
            return PyGroup{r, r->make_group(name, std::move(ranks))};
          },
          nb::arg("name"), nb::arg("ranks"),
          "Create a group of world ranks that includes this one, without communication."
          " All members must create it.");
}

void bind_reports(RuntimeClass& runtime) {
  runtime
      .def("notify", &Runtime::notify, nb::arg("handle"), nb::arg("token"),
           "Make next_event() return the token once the operation is done.")
      .def(
          "next_event",
          [](Runtime& r, double timeout) -> std::optional<std::pair<std::string, std::uint64_t>> {
            std::optional<std::uint64_t> token;
            {
              const nb::gil_scoped_release release;
              token = r.next_event(to_nanoseconds(timeout));
            }
            if (!token) return std::nullopt;
            return std::make_pair("done", *token);
          },
          nb::arg("timeout"), "Return the next ('done', token), or None after `timeout` seconds.")
      .def(
          "next_log",
          [](Runtime& r, double timeout) -> std::optional<std::pair<int, std::string>> {
            std::optional<std::pair<LogLevel, std::string>> record;
            {
              const nb::gil_scoped_release release;
              record = r.next_log(to_nanoseconds(timeout));
            }
            if (!record) return std::nullopt;
            return std::make_pair(static_cast<int>(record->first) * 10 + 10, record->second);
          },
          nb::arg("timeout"),
          "Return the next (logging level, text), or None after `timeout` seconds.")
      .def(
          "stats",
          [](Runtime& r) {
            const nb::gil_scoped_release release;
            return r.stats();
          },
          "Return the counters.")
      .def(
          "flight",
          [](Runtime& r) {
            const nb::gil_scoped_release release;
            return r.flight();
          },
          "Return the state of the engine, with its last operations and events.")
      .def("alarms", &Runtime::alarms,
           "Return the number of events for which a flight record should be written; such an event"
           " also ends next_log().")
      .def("keep_records", &Runtime::keep_records, nb::arg("keep"),
           "Set whether completed operations are recorded for take_records().")
      .def("take_records", &Runtime::take_records, "Return the records since the last call.")
      .def(
          "close",
          [](Runtime& r) {
            const nb::gil_scoped_release release;
            r.close();
          },
          "Tell the peers and end all operations in flight. Idempotent.");
}

}  // namespace

void bind_runtime(nb::module_& m) {
  bind_config(m);
  bind_stats(m);
  RuntimeClass runtime(m, "Runtime", "Engine of one rank with its transports.");
  bind_life(runtime);
  bind_reports(runtime);
}

}  // namespace slipstream
