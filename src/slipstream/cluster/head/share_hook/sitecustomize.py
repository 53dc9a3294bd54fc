"""Limits TensorFlow to a share of each GPU's memory when a program has imported it.

Python imports this module at its start, because its folder is in PYTHONPATH. TensorFlow reads no
such limit from a variable, other than PyTorch and JAX.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

FRAMEWORK = "tensorflow"


class LimitingLoader(Loader):
    """A loader that sets the limit when the module has been executed.

    Args:
        loader: Loader of the module.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module that the loader creates."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, and set the limit."""
        self._loader.exec_module(module)
        limit_memory(module)


class FrameworkFinder(MetaPathFinder):
    """A finder that wraps the loader of TensorFlow."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return TensorFlow's description with another loader; None for every other module."""
        if fullname != FRAMEWORK:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = LimitingLoader(spec.loader)
        return spec


def limit_memory(tf: Any) -> None:
    """Limit TensorFlow to the memory of each GPU that this process may use."""
    from slipstream.settings import Settings

    mebibytes = Settings.from_environment().gpu_memory
    if mebibytes is None:
        return
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=mebibytes)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.set_logical_device_configuration(gpu, [limit])


def _import_hidden() -> None:
    """Import the module of the same name that this one hides, if there is one."""
    own = sys.modules.pop(__name__)
    sys.path = [path for path in sys.path if Path(path) != Path(__file__).parent]
    importlib.invalidate_caches()
    if importlib.util.find_spec(__name__) is not None:
        importlib.import_module(__name__)
    sys.modules.setdefault(__name__, own)


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, FrameworkFinder())
    _import_hidden()
