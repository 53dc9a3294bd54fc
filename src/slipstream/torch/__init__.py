"""PyTorch's adapter: the backend "slipstream" of torch.distributed, for CPU tensors.

PyTorch finds the backend by itself, through its entry point. Importing this package registers it
where PyTorch was told not to look (TORCH_DEVICE_BACKEND_AUTOLOAD=0).
"""

import importlib
from typing import TYPE_CHECKING, Any

import torch as torch  # without PyTorch, the error should say so

from slipstream.torch.plugin import register as register

if TYPE_CHECKING:
    from slipstream.torch.compression import compress as compress
    from slipstream.torch.step_overlap import overlap as overlap
    from slipstream.torch.step_tuning import tune as tune

# PyTorch imports this package while it is itself half imported: the rest comes when it is used.
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
