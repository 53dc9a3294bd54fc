#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <vector>

#include "module.h"
#include "slipstream/arrivals.h"

namespace slipstream {

void bind_arrivals(nb::module_& m) {
  nb::class_<Arrivals>(m, "Arrivals", "Connections of a listening socket, sorted.")
      .def_ro("greeted", &Arrivals::greeted, "Descriptors that begin with the greeting.")
      .def_ro("silent", &Arrivals::silent, "Descriptors that have not sent the whole greeting.")
      .def_ro("refused", &Arrivals::refused, "Addresses of those that were closed.")
      .def_ro("accepted", &Arrivals::accepted, "Number of connections that were accepted.")
      .def_ro("error", &Arrivals::error, "errno if no more can be accepted now, or 0.");
  m.def(
      "sort_arrivals",
      [](int listener, const std::vector<int>& silent, std::size_t most,
         const nb::bytes& greeting) {
        const std::string_view bytes(greeting.c_str(), greeting.size());
        const nb::gil_scoped_release release;
        return sort_arrivals(listener, silent, most, bytes);
      },
      nb::arg("listener"), nb::arg("silent"), nb::arg("most"), nb::arg("greeting"),
      "Accept connections; sort them, and those that were silent, by their first bytes.");
}

}  // namespace slipstream
