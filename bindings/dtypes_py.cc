#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "module.h"
#include "slipstream/codec.h"
#include "slipstream/collective.h"
#include "slipstream/dtype.h"
#include "slipstream/runtime.h"

namespace slipstream {

namespace {

/// Adds the enumerators under their names in capitals, such as FLOAT32 for "float32".
template <class Enum>
void add_values(nb::enum_<Enum> bound, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    std::string name(name_of(value));
    for (char& letter : name) {
      if ('a' <= letter && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
    }
    bound.value(name.c_str(), value);
  }
}

}  // namespace

void bind_dtypes(nb::module_& m) {
  add_values(nb::enum_<DType>(m, "DType", "Element type."), kNumDTypes);
  add_values(
      nb::enum_<ReduceOp>(m, "ReduceOp", "Operation that combines the elements of several ranks."),
      kNumReduceOps);
  nb::enum_<Algorithm>(m, "Algorithm", "Algorithm of a collective.")
      .value("AUTO", Algorithm::kAuto)
      .value("RING", Algorithm::kRing)
      .value("DIMENSIONS", Algorithm::kDimensions)
      .value("RECURSIVE_DOUBLING", Algorithm::kRecursiveDoubling)
      .value("BINOMIAL", Algorithm::kBinomial)
      .value("DIRECT", Algorithm::kDirect)
      .value("ENCODED", Algorithm::kEncoded);
  nb::class_<CodecTraits>(m, "CodecTraits", "Layout of a codec on the wire; the ratio is fixed.")
      .def_prop_ro("name", [](const CodecTraits& traits) { return std::string(traits.name); })
      .def_ro("block", &CodecTraits::block, "Number of elements that are encoded together.")
      .def_ro("header_bytes", &CodecTraits::header_bytes, "Size of each block's scale in bytes.")
      .def_ro("element_bytes", &CodecTraits::element_bytes,
              "Size of each encoded element in bytes.");
  m.def(
      "codecs", [] { return std::vector(kCodecTraits.begin(), kCodecTraits.end()); },
      "Return the codecs of float32 on the wire, the exact one first.");
  m.def("simd_target", &simd_target_name,
        "Return the SIMD target chosen for this CPU, such as 'AVX3'.");
  m.def("algorithm_table", &algorithm_table,
        "Return the table of rules that choose algorithms: one rule per line, with "
        "columns separated by tabs.");
  m.def(
      "itemsize", [](DType dtype) { return size_of(dtype); }, nb::arg("dtype"),
      "Size of one element in bytes.");
}

}  // namespace slipstream
