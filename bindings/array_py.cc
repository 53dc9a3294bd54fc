#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "module.h"
#include "slipstream/dtype.h"
#include "slipstream/error.h"
#include "slipstream/listen.h"

namespace slipstream {
namespace {

using AnyArray = nb::ndarray<nb::ro>;

std::optional<DType> by_width(unsigned bits, std::optional<DType> one, std::optional<DType> two,
                              std::optional<DType> four, std::optional<DType> eight) {
  switch (bits) {
    case 8:
      return one;
    case 16:
      return two;
    case 32:
      return four;
    case 64:
      return eight;
    default:
      return std::nullopt;
  }
}

/// Our dtype for DLPack's element type.
std::optional<DType> dtype_of(const nb::dlpack::dtype& type) {
  if (type.lanes != 1) return std::nullopt;
  switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
    case nb::dlpack::dtype_code::Int:
      return by_width(type.bits, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64);
    case nb::dlpack::dtype_code::UInt:
      return by_width(type.bits, DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64);
    case nb::dlpack::dtype_code::Float:
      return by_width(type.bits, {}, DType::kFloat16, DType::kFloat32, DType::kFloat64);
    case nb::dlpack::dtype_code::Bfloat:
      return by_width(type.bits, {}, DType::kBFloat16, {}, {});
    case nb::dlpack::dtype_code::Complex:
      if (type.bits == 128) return DType::kComplex128;
      return by_width(type.bits, {}, {}, {}, DType::kComplex64);
    case nb::dlpack::dtype_code::Bool:
      return by_width(type.bits, DType::kBool, {}, {}, {});
    default:
      return std::nullopt;
  }
}

bool is_contiguous(const AnyArray& array) {
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return array.size() == 0;
    expected *= static_cast<std::int64_t>(array.shape(i));
  }
  return true;
}

nb::tuple view(const nb::handle& object) {
  AnyArray array;
  if (!nb::try_cast(object, array, false)) {
    fail(ErrorKind::kUsage, "expected an array with the buffer protocol or __dlpack__, got ",
         nb::type_name(object.type()).c_str(), "; pass a NumPy array or an array of a framework");
  }
  if (array.device_type() != nb::device::cpu::value) {
    fail(ErrorKind::kUnsupported, "the array is in the memory of DLPack device type ",
         array.device_type(), "; allowed: CPU memory (type 1): copy the array to the CPU first");
  }
  const std::optional<DType> dtype = dtype_of(array.dtype());
  if (!dtype) {
    fail(ErrorKind::kUsage, "the array has elements of DLPack type code ", int{array.dtype().code},
         " with ", int{array.dtype().bits},
         " bits, which are not supported; convert it to integers, floats or complex numbers");
  }
  if (!is_contiguous(array)) {
    fail(ErrorKind::kUsage, "the array of ", array.size(),
         " elements is not contiguous in C order; pass a contiguous copy of it");
  }
  nb::ndarray<> writable;
  const bool can_write = nb::try_cast(object, writable, false);
  nb::list shape;
  for (std::size_t i = 0; i < array.ndim(); ++i) shape.append(array.shape(i));
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), array.size(), *dtype,
                        nb::tuple(shape), can_write, nb::cast(array));
}

}  // namespace

void bind_arrays(nb::module_& m) {
  m.def("array_view", &view, nb::arg("array"),
        nb::sig("def array_view(array: object) -> tuple[int, int, DType, tuple[int, ...], bool, "
                "object]"),
        "Return (address, count, DType, shape, writable, owner) of a contiguous array"
        " in CPU memory; the memory lives as long as the owner.");
  nb::class_<ListenAddress>(m, "ListenAddress",
                            "Address of a rank, with the reason why it is used, or is not.")
      .def_ro("address", &ListenAddress::address)
      .def_ro("interface", &ListenAddress::interface)
      .def_ro("reason", &ListenAddress::reason)
      .def_ro("usable", &ListenAddress::usable);
  m.def("choose_listen_addresses", &choose_listen_addresses, nb::arg("filter"), nb::arg("towards"),
        nb::call_guard<nb::gil_scoped_release>(),  // it may ask a name server
        "Return the addresses on which this rank should listen, the best first. "
        "`filter` is empty or has NCCL's syntax; `towards` is empty or a host of the "
        "job.");
  m.def("explain_listen_addresses", &explain_listen_addresses, nb::arg("filter"),
        nb::arg("towards"), nb::call_guard<nb::gil_scoped_release>(),
        "Return the addresses of choose_listen_addresses(), followed by all others of this host, "
        "with the reason why they are not used.");
}

}  // namespace slipstream
