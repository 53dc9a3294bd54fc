"""The demo: a small ResNet on Fashion-MNIST, by the scripts of examples/01_fashion_mnist."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import slipstream
from slipstream.errors import ConfigError, UnsupportedError

BATCH = 64  # pictures of a rank and step, as train.py has them
EPOCHS = 10
THREADS = 1  # of a rank
SAMPLES = 60_000
SIDE = 28
SHAPE = (1, SIDE, SIDE)
# Xiao, Rasul and Vollgraf, "Fashion-MNIST" (2017), table 2.
CLASSES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
    "ankle boot",
)  # fmt: skip

# Where each extra brings what the tour takes.
_PACKAGES = {
    "torch": ("torch",),
    "forecast": ("pydantic", "scipy"),
    "serve": ("onnx", "onnxruntime", "onnxscript", "openvino", "orjson", "starlette", "uvloop"),
}


def check_packages() -> None:
    """Check that all packages of the tour are installed.

    Raises:
        UnsupportedError: something is not; with the command that installs it.
    """
    missing = {
        extra: [name for name in names if importlib.util.find_spec(name) is None]
        for extra, names in _PACKAGES.items()
    }
    if names := [name for each in missing.values() for name in each]:
        extras = ",".join(extra for extra, each in missing.items() if each)
        raise UnsupportedError(
            f"the tour needs {', '.join(names)}, not installed here;"
            f" pip install 'slipstream[{extras}]'"
        )


def folder() -> Path:
    """Return the folder of the demo's scripts: the checkout's, or the copy in an installed wheel.

    Raises:
        UnsupportedError: there is neither.
    """
    package = Path(slipstream.__file__).parent
    places = (package.parents[1] / "examples", package / "examples")
    found = (place / "01_fashion_mnist" for place in places)
    for each in found:
        if (each / "train.py").is_file():
            return each
    raise UnsupportedError(
        f"the demo's scripts are not in {' or '.join(map(str, places))}; install Slipstream anew"
    )


def module(name: str) -> ModuleType:
    """Import one of the demo's self-contained modules, "data" or "model"."""
    path = folder() / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"slipstream_demo_{name}", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def fetch() -> None:
    """Download the images unless they are already on this machine.

    Raises:
        ConfigError: they are not, and cannot be downloaded; with what to do.
    """
    data = module("data")
    try:
        data.fetch()
    except data.DataError as error:
        raise ConfigError(str(error)) from error
