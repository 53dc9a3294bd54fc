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

void bind_dtypes(nb::module_& m) {
  nb::enum_<DType>(m, "DType", "Element type.")
      .value("INT8", DType::kInt8)
      .value("UINT8", DType::kUInt8)
      .value("INT16", DType::kInt16)
      .value("UINT16", DType::kUInt16)
      .value("INT32", DType::kInt32)
      .value("UINT32", DType::kUInt32)
      .value("INT64", DType::kInt64)
      .value("UINT64", DType::kUInt64)
      .value("FLOAT16", DType::kFloat16)
      .value("BFLOAT16", DType::kBFloat16)
      .value("FLOAT32", DType::kFloat32)
      .value("FLOAT64", DType::kFloat64)
      .value("COMPLEX64", DType::kComplex64)
      .value("COMPLEX128", DType::kComplex128)
      .value("BOOL", DType::kBool);
  nb::enum_<ReduceOp>(m, "ReduceOp", "Operation that combines the elements of several ranks.")
      .value("SUM", ReduceOp::kSum)
      .value("AVERAGE", ReduceOp::kAverage)
      .value("MIN", ReduceOp::kMin)
      .value("MAX", ReduceOp::kMax)
      .value("PRODUCT", ReduceOp::kProduct)
      .value("BAND", ReduceOp::kBand)
      .value("BOR", ReduceOp::kBor)
      .value("BXOR", ReduceOp::kBxor);
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
