#include <exception>

#include "module.h"
#include "slipstream/error.h"

namespace slipstream {
namespace {

const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "UsageError";
    case ErrorKind::kConfig:
      return "ConfigError";
    case ErrorKind::kPeer:
      return "PeerError";
    case ErrorKind::kPeerTimeout:
      return "PeerTimeoutError";
    case ErrorKind::kMismatch:
      return "MismatchError";
    case ErrorKind::kAborted:
      return "AbortedError";
    case ErrorKind::kAuth:
      return "AuthError";
    case ErrorKind::kUnsupported:
      return "UnsupportedError";
    default:
      return "InternalError";
  }
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object type =
        nb::module_::import_("slipstream.errors").attr(class_name(error.kind()));
    PyErr_SetString(type.ptr(), error.what());
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace slipstream
