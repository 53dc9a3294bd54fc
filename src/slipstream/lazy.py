"""Packages that import a public name when it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from slipstream.errors import UnsupportedError


def attributes(package: str, extra: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package, which imports a public name on its first use.

    Args:
        package: Name of the package.
        extra: Name of the pip extra that installs what the modules of the package import.
        modules: Module and attribute of each public name, written "package.module:name".

    The returned function raises AttributeError for a name that is not public. If a required package
    is not installed, the function raises UnsupportedError, whose message has the pip command that
    installs the package.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = modules[name].partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("slipstream"):
                raise
            raise UnsupportedError(
                f"{package} needs the package {error.name}; pip install 'slipstream[{extra}]'"
            ) from error

    return find
