#include "module.h"

namespace slipstream {
namespace {

/// The items of a list or a tuple if all of them have the type. Runs no Python code in which Ctrl-C
/// could arrive.
nb::object items_of(nb::handle type, nb::handle otherwise, nb::handle value) {
  if (!nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value)) {
    return otherwise(value);
  }
  nb::list items;
  for (const nb::handle item : value) {
    if (!nb::isinstance(item, type)) return otherwise(value);
    items.append(item);
  }
  return items;
}

}  // namespace

void bind_items(nb::module_& m) {
  m.def("items_of", items_of, nb::arg("type"), nb::arg("otherwise"), nb::arg("value"),
        "Return the items of a list or tuple if all are instances of the type, "
        "without running Python code; otherwise return otherwise(value).");
}

}  // namespace slipstream
