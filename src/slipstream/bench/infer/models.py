"""Models that `slipstream bench infer` measures: models of the zoo, or a model of the user."""

from __future__ import annotations

import hashlib
import inspect
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from slipstream.bench.zoo import ZOO, ZooModel
from slipstream.errors import UsageError
from slipstream.forecast.trace.architectures import convolutions, efficient, resnet
from slipstream.user_modules import import_user_object

# Cached files depend on the versions of these packages, on the modules of this benchmark, and on
# the source of the network.
PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "nncf")
MAKERS = ("prepare", "samples", "contenders")
ARCHITECTURES = (convolutions, efficient, resnet)


def find_model(name: str) -> ZooModel:
    """Return a model by its name in the zoo, or by package.module:name or path.py:name.

    Raises:
        UsageError: no model has this name.
    """
    if name in ZOO:
        return ZOO[name]
    if ":" not in name:
        raise UsageError(
            f"the model is {name!r}; allowed: {', '.join(ZOO)}, or package.module:name or"
            " path.py:name of a slipstream.bench.zoo.ZooModel"
        )
    model = import_user_object(name)
    if not isinstance(model, ZooModel):
        raise UsageError(f"{name} is a {type(model).__name__}; it has to be a ZooModel")
    return model


@contextmanager
def model_folder(cache: Path | None, name: str) -> Generator[Path]:
    """Yield the folder for a model's files, either in the cache or a temporary folder."""
    if cache is None:
        with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as temporary:
            yield Path(temporary)
        return
    folder = cache / folder_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def folder_name(name: str) -> str:
    """Return the name of a model's folder.

    The name contains a hash of the network's source, the versions of the packages and the modules
    of this benchmark. Therefore a change of the network, a package or the benchmark leads to a new
    folder, and outdated files are never used.
    """
    model = find_model(name)
    sources = [inspect.getsourcefile(model.build), inspect.getsourcefile(ZooModel)]
    files = {path for source in sources if source for path in _beside(Path(source))}
    files |= {Path(__file__).with_name(f"{module}.py") for module in MAKERS}
    packages = " ".join(f"{package} {_version(package)}" for package in PACKAGES)
    digest = hashlib.sha256(packages.encode())
    for path in sorted(files):
        digest.update(path.read_bytes())
    return f"{model.name}-{digest.hexdigest()[:12]}"


def _beside(source: Path) -> list[Path]:
    """Return the source files that define a model: all modules of the zoo, or the user's file."""
    if source.parent.name != "zoo":
        return [source]
    architectures = (module.__file__ for module in ARCHITECTURES)
    return [*source.parent.glob("*.py"), *(Path(file) for file in architectures if file)]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
