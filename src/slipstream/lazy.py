"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from slipstream.errors import UnsupportedError


def attributes(package: str, extra: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: Name of the package.
        extra: Name of the extra that installs what its modules import.
        modules: Module and attribute of each public name, written "package.module:name".

    The function raises UnsupportedError, with the command that helps, if a module imports a package
    that is not installed, and AttributeError for any other name.
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
