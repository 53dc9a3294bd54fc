"""Adapter for PyTorch: the backend "slipstream" of torch.distributed.

PyTorch finds the backend by itself, through an entry point of this package. If PyTorch was told not
to load backends (TORCH_DEVICE_BACKEND_AUTOLOAD=0), an import of this package registers the backend.
"""

import importlib
from typing import TYPE_CHECKING, Any

import torch as torch  # first, so that the error names torch if PyTorch is not installed

from slipstream.torch.plugin import register as register

if TYPE_CHECKING:
    from slipstream.torch.compression import compress as compress
    from slipstream.torch.step_overlap import overlap as overlap
    from slipstream.torch.step_tuning import tune as tune

# PyTorch imports this package while its own import is not complete, so these names are imported
# when they are first used.
_LATER = {
    "compress": "slipstream.torch.compression",
    "overlap": "slipstream.torch.step_overlap",
    "tune": "slipstream.torch.step_tuning",
}

register()


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
