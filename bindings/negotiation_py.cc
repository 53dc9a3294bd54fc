#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "group_py.h"
#include "slipstream/negotiation.h"

namespace slipstream {
namespace {

/// Python does not own it, so the negotiator's thread can drop it without the GIL.
struct PyTensor {
  std::shared_ptr<const TensorSpec> spec;
};

Collective collective_named(const std::string& name) {
  std::string known;
  for (int i = 0; i < static_cast<int>(Collective::kSend); ++i) {
    const auto each = static_cast<Collective>(i);
    if (name_of(each) == name) return each;
    known += concat(known.empty() ? "" : ", ", name_of(each));
  }
  fail(ErrorKind::kUsage, "collective is '", name, "'; allowed: ", known);
}

std::shared_ptr<const TensorSpec> make_spec(std::string name, const std::string& collective,
                                            DType dtype, std::vector<std::int64_t> shape,
                                            ReduceOp op, std::uint32_t root,
                                            const std::string& codec, std::string note) {
  const auto parsed = parse_codec(codec);
  if (!parsed) fail(ErrorKind::kUsage, "codec is '", codec, "'; allowed: ", codec_names());
  return std::make_shared<const TensorSpec>(
      TensorSpec{std::move(name), collective_named(collective), dtype, std::move(shape), op, root,
                 *parsed, std::move(note)});
}

void bind_tensor(nb::module_& m) {
  nb::class_<PyTensor>(m, "Tensor", "Properties of a tensor that must be equal on all ranks.")
      .def(
          "__init__",
          [](PyTensor* self, std::string name, DType dtype, std::vector<std::int64_t> shape,
             const std::string& collective, ReduceOp op, std::uint32_t root,
             const std::string& codec, std::string note) {
            new (self) PyTensor{make_spec(std::move(name), collective, dtype, std::move(shape), op,
                                          root, codec, std::move(note))};
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::kw_only(),
          nb::arg("collective") = "allreduce", nb::arg("op") = ReduceOp::kSum, nb::arg("root") = 0,
          nb::arg("codec") = "none", nb::arg("note") = "")
      .def_prop_ro("name", [](const PyTensor& t) { return t.spec->name; })
      .def_prop_ro("dtype", [](const PyTensor& t) { return t.spec->dtype; })
      .def_prop_ro(
          "shape", [](const PyTensor& t) { return nb::tuple(nb::cast(t.spec->shape)); },
          nb::for_getter(nb::sig("def shape(self) -> tuple[int, ...]")))
      .def_prop_ro("collective",
                   [](const PyTensor& t) { return std::string(name_of(t.spec->collective)); })
      .def_prop_ro("op", [](const PyTensor& t) { return t.spec->op; })
      .def_prop_ro("root", [](const PyTensor& t) { return t.spec->root; })
      .def_prop_ro("codec", [](const PyTensor& t) { return std::string(name_of(t.spec->codec)); })
      .def_prop_ro("note", [](const PyTensor& t) { return t.spec->note; });
}

void bind_outcome(nb::module_& m) {
  nb::class_<AgreedTensor>(m, "AgreedTensor", "Tensor that is ready on all ranks.")
      .def_prop_ro("tensor", [](const AgreedTensor& a) { return PyTensor{a.tensor}; })
      .def_ro("token", &AgreedTensor::token)
      .def_ro("submitted", &AgreedTensor::submitted,
              "False if this rank has joined and takes part without data of its own.")
      .def_ro("fused", &AgreedTensor::fused,
              "Equal for tensors that were submitted together; 0 for a single one.");
  nb::class_<FailedTensor>(m, "FailedTensor", "Tensor of this rank that has failed.")
      .def_prop_ro("tensor", [](const FailedTensor& f) { return PyTensor{f.tensor}; })
      .def_ro("token", &FailedTensor::token)
      .def(
          "check", [](const FailedTensor& f) { throw Error(f.error); },
          "Raise the error with which the tensor failed.");
  nb::class_<Outcome>(m, "Outcome", "Result of a round.")
      .def_ro("round", &Outcome::round)
      .def_ro("ready", &Outcome::ready, "Ready tensors, in the same order on all ranks.")
      .def_prop_ro(
          "tokens",
          [](const Outcome& o) {
            std::vector<std::uint64_t> tokens;
            for (const AgreedTensor& each : o.ready) {
              if (each.submitted) tokens.push_back(each.token);
            }
            return tokens;
          },
          "Tokens of the tensors in `ready` that this rank has submitted.")
      .def_ro("failed", &Outcome::failed)
      .def_ro("some_joined", &Outcome::some_joined,
              "True if some rank had joined and takes part in `ready` without data.")
      .def_ro("last_joined", &Outcome::last_joined,
              "Rank that joined last, once all ranks have joined.");
  nb::class_<NegotiationStats>(m, "NegotiationStats", "Counters of a negotiator.")
      .def_ro("rounds", &NegotiationStats::rounds)
      .def_ro("void_rounds", &NegotiationStats::void_rounds)
      .def_ro("introductions", &NegotiationStats::introductions)
      .def_ro("tensors", &NegotiationStats::tensors)
      .def_ro("known_tensors", &NegotiationStats::known_tensors)
      .def_ro("stalls_reported", &NegotiationStats::stalls_reported)
      .def_ro("messages", &NegotiationStats::messages)
      .def_ro("payload_bytes", &NegotiationStats::payload_bytes);
}

/// Waits for an outcome, and checks Python's signals now and then, so that Ctrl-C ends the wait.
std::optional<Outcome> next(Negotiator& negotiator, double timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kSignals = std::chrono::milliseconds(100);
  const Clock::time_point until = Clock::now() + to_nanoseconds(timeout);
  while (true) {
    const std::chrono::nanoseconds left = until - Clock::now();
    std::optional<Outcome> outcome;
    {
      const nb::gil_scoped_release release;
      outcome = negotiator.next(std::min(kSignals, left));
    }
    if (outcome || Clock::now() >= until) return outcome;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace

void bind_negotiation(nb::module_& m) {
  bind_tensor(m);
  bind_outcome(m);
  nb::class_<Negotiator>(m, "Negotiator", "One rank's part in the negotiations of a group.")
      .def(
          "submit",
          [](Negotiator& n, const PyTensor& tensor, std::uint64_t token) {
            const Submission one{tensor.spec, token};
            n.submit({&one, 1});
          },
          nb::arg("tensor"), nb::arg("token") = 0)
      .def(
          "submit_all",
          [](Negotiator& n, const std::vector<PyTensor>& tensors, std::uint64_t first_token) {
            std::vector<Submission> all;
            all.reserve(tensors.size());
            for (const PyTensor& each : tensors) all.push_back({each.spec, first_token++});
            n.submit_each(all);
          },
          nb::arg("tensors"), nb::arg("first_token") = 0,
          "Submit one tensor after another, with ascending tokens, for the same round.")
      .def(
          "submit_fused",
          [](Negotiator& n, const std::vector<PyTensor>& tensors,
             const std::vector<std::uint64_t>& tokens) {
            if (tokens.size() != tensors.size()) {
              fail(ErrorKind::kUsage, tensors.size(), " tensors were submitted with ",
                   tokens.size(), " tokens; pass one token for each tensor");
            }
            std::vector<Submission> unit;
            for (std::size_t i = 0; i < tensors.size(); ++i) {
              unit.push_back({tensors[i].spec, tokens[i]});
            }
            n.submit(unit);
          },
          nb::arg("tensors"), nb::arg("tokens"),
          "Submit tensors that become ready together or not at all.")
      .def("join", &Negotiator::join,
           "State that this rank has no more data than it has submitted.")
      .def("next", next, nb::arg("timeout"),
           "Wait without the GIL for the next outcome; return None after `timeout` "
           "seconds.")
      .def("stats", &Negotiator::stats)
      .def(
          "close",
          [](Negotiator& n) {
            const nb::gil_scoped_release release;
            n.close();
          },
          "Fail all waiting tensors, here and on the other members. Idempotent.");
  m.def(
      "make_negotiator",
      [](const PyGroup& group, double cycle, double hold, double stall_after,
         std::uint32_t most_tensors) {
        const nb::gil_scoped_release release;
        return group.runtime->make_negotiator(
            group.group, NegotiationOptions{to_nanoseconds(cycle), to_nanoseconds(hold),
                                            to_nanoseconds(stall_after), most_tensors});
      },
      nb::arg("group"), nb::kw_only(), nb::arg("cycle") = 0.0, nb::arg("hold") = 0.5,
      nb::arg("stall_after") = 60.0, nb::arg("most_tensors") = 65536,
      "Create this rank's part in the negotiations of the group; all members must "
      "create it.");
}

}  // namespace slipstream
