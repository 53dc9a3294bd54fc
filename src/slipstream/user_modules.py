"""Imports of a user's own objects, named "package.module:name" or "path/to/file.py:name"."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from slipstream.errors import UsageError

SPELLING = "allowed: package.module:function or path/to/file.py:function"


def import_user_object(text: str) -> Any:
    """Return the object that a text names, such as "models.zoo:make" or "models.py:make".

    Raises UsageError if the module, file or object does not exist, and if the import fails.
    """
    place, _, name = text.rpartition(":")
    return member(import_user_module(place), place, name)


def member(module: ModuleType, place: str, name: str) -> Any:
    """Return an object of a module.

    Args:
        module: Module that has the object.
        place: Name or file of the module, for the error message.
        name: Name of the object. A dot stands before the name of an attribute: "Zoo.make".

    Raises UsageError if the module has no such object.
    """
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{place} has no {name!r}; {SPELLING}")
        value = getattr(value, part)
    return value


def import_user_module(place: str) -> ModuleType:
    """Import a module by its name or by the path of its file.

    A name is searched for in the current folder first. A file may import modules from its own
    folder.

    Raises UsageError if the module or file does not exist, and if the import fails.
    """
    is_file = place.endswith(".py")
    path = Path(place)
    if is_file and not path.is_file():
        raise UsageError(f"there is no file {place}; {SPELLING}")
    with _importing_from(path.resolve().parent if is_file else Path.cwd()):
        try:
            return _import_file(path) if is_file else importlib.import_module(place)
        except SystemExit as error:  # raised if the module parses the arguments of our command
            raise UsageError(
                f"{place} exited during its import ({error}): put the code that it runs by itself,"
                " such as the reading of its arguments, under if __name__ == '__main__':"
            ) from error
        except Exception as error:  # the user's code may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"{place} cannot be imported: {reason}; {SPELLING}") from error


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, among others, look up the module that defines them in sys.modules.
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        if before is not None:
            sys.modules[path.stem] = before
    return module


@contextmanager
def _importing_from(folder: Path) -> Generator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
