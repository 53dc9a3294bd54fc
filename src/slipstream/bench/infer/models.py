"""The models that `slipstream bench infer` measures: the zoo's, or one of the user's."""

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
from slipstream.user_modules import import_user_object

# What cached files depend on, beside the networks' source: packages, and modules beside this one.
PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "nncf")
MAKERS = ("prepare", "samples", "contenders")


def find_model(name: str) -> ZooModel:
    """Return the model of a name: one of the zoo's, or package.module:attribute of a `ZooModel`.

    Raises:
        UsageError: there is none.
    """
    if name in ZOO:
        return ZOO[name]
    if ":" not in name:
        raise UsageError(
            f"the model is {name!r}; allowed: {', '.join(ZOO)}, or package.module:attribute of a"
            " slipstream.bench.zoo.ZooModel"
        )
    model = import_user_object(name)
    if not isinstance(model, ZooModel):
        raise UsageError(f"{name} is a {type(model).__name__}; it has to be a ZooModel")
    return model


@contextmanager
def model_folder(cache: Path | None, name: str) -> Generator[Path]:
    """Yield the folder of a model's files: in the cache, or temporary if there is no cache."""
    if cache is None:
        with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as temporary:
            yield Path(temporary)
        return
    folder = cache / folder_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def folder_name(name: str) -> str:
    """Return the folder of a model's files: another one where what makes them differs.

    That are the networks, the packages and the benchmark's own modules.
    """
    model = find_model(name)
    sources = [inspect.getsourcefile(model.build), inspect.getsourcefile(ZooModel)]
    files = {path for source in sources if source for path in _beside(Path(source))}
    files |= {Path(__file__).with_name(f"{module}.py") for module in MAKERS}
    digest = hashlib.sha256(" ".join(f"{each} {_version(each)}" for each in PACKAGES).encode())
    for path in sorted(files):
        digest.update(path.read_bytes())
    return f"{model.name}-{digest.hexdigest()[:12]}"


def _beside(source: Path) -> list[Path]:
    """Return the sources that make a model: all of the zoo's, or only a user's own file."""
    return list(source.parent.glob("*.py")) if source.parent.name == "zoo" else [source]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
