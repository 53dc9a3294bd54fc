"""What training a model needs, before anything is bought: arithmetic on what its operators are.

    from slipstream import forecast

    result = forecast.forecast("resnet50", batch=256, gpus=("A100", "H100"), precision="bf16")
    best = result.plans[0]
    print(best.machine.name, best.hosts, best.strategy, best.seconds_per_step)

Needs what `pip install 'slipstream[forecast]'` brings, and PyTorch to trace models.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from slipstream.errors import UnsupportedError

if TYPE_CHECKING:
    from slipstream.forecast.ask import forecast as forecast
    from slipstream.forecast.plan import Interval as Interval
    from slipstream.forecast.plan import Loss as Loss
    from slipstream.forecast.plan import Plan as Plan
    from slipstream.forecast.search import Result as Result

# PyTorch comes when a model is traced, everything else when something is used.
_LATER = {
    "forecast": ("slipstream.forecast.ask", "forecast"),
    "Interval": ("slipstream.forecast.plan", "Interval"),
    "Loss": ("slipstream.forecast.plan", "Loss"),
    "Plan": ("slipstream.forecast.plan", "Plan"),
    "Result": ("slipstream.forecast.search", "Result"),
}

__all__ = ["Interval", "Loss", "Plan", "Result", "forecast"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slipstream"):
            raise
        raise UnsupportedError(
            f"slipstream.forecast needs the package {error.name};"
            " pip install 'slipstream[forecast]'"
        ) from error
