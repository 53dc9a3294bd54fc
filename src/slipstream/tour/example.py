"""The demo: a small ResNet on Fashion-MNIST, whose scripts are in examples/01_fashion_mnist."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import slipstream
from slipstream.errors import ConfigError, UnsupportedError

BATCH = 64  # number of images per rank and step, as in train.py
EPOCHS = 10
THREADS = 1  # number of threads of a rank
SAMPLES = 60_000  # number of training images
SIDE = 28  # width and height of an image in pixels
SHAPE = (1, SIDE, SIDE)
# Xiao, Rasul and Vollgraf, "Fashion-MNIST" (2017), table 2.
CLASSES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
    "ankle boot",
)  # fmt: skip

_PACKAGES = {  # packages that the tour needs, grouped by the pip extra that installs them
    "torch": ("torch",),
    "forecast": ("pydantic", "scipy"),
    "serve": ("onnx", "onnxruntime", "onnxscript", "openvino", "orjson", "starlette", "uvloop"),
}


def check_packages() -> None:
    """Check that all packages of the tour are installed.

    Raises:
        UnsupportedError: a package is missing; the message has the command that installs it.
    """
    missing = {
        extra: [name for name in names if importlib.util.find_spec(name) is None]
        for extra, names in _PACKAGES.items()
    }
    if packages := [name for names in missing.values() for name in names]:
        extras = ",".join(extra for extra, names in missing.items() if names)
        raise UnsupportedError(
            f"the tour needs {', '.join(packages)}, not installed here;"
            f" pip install 'slipstream[{extras}]'"
        )


def folder() -> Path:
    """Return the folder with the demo's scripts, in the checkout or in an installed wheel.

    Raises:
        UnsupportedError: neither a checkout nor an installed wheel has the folder.
    """
    package = Path(slipstream.__file__).parent
    examples = (package.parents[1] / "examples", package / "examples")
    for path in examples:
        if (path / "01_fashion_mnist" / "train.py").is_file():
            return path / "01_fashion_mnist"
    raise UnsupportedError(
        f"the demo's scripts are not in {' or '.join(map(str, examples))}; install Slipstream again"
    )


def module(name: str) -> ModuleType:
    """Import the demo's module "data" or "model"; neither imports other modules of the demo."""
    path = folder() / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"slipstream_demo_{name}", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    imported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(imported)
    return imported


def fetch() -> None:
    """Download the images unless this machine already has them.

    Raises:
        ConfigError: the images cannot be downloaded; the message says what to do.
    """
    data = module("data")
    try:
        data.fetch()
    except data.DataError as error:
        raise ConfigError(str(error)) from error
