"""What training a model needs, before anything is bought: arithmetic on what its operators are.

    from slipstream import forecast

    result = forecast.forecast("resnet50", batch=256, gpus=("A100", "H100"), precision="bf16")
    best = result.plans[0]
    print(best.machine.name, best.hosts, best.strategy, best.seconds_per_step)

Needs what `pip install 'slipstream[forecast]'` brings, and PyTorch to trace models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream import lazy

if TYPE_CHECKING:
    from slipstream.forecast.ask import forecast as forecast
    from slipstream.forecast.search.plan import Interval as Interval
    from slipstream.forecast.search.plan import Loss as Loss
    from slipstream.forecast.search.plan import Plan as Plan
    from slipstream.forecast.search.search import Result as Result

__all__ = ["Interval", "Loss", "Plan", "Result", "forecast"]

# PyTorch is imported when a model is traced, everything else when something is used.
__getattr__ = lazy.attributes(
    "slipstream.forecast",
    "forecast",
    {
        "Interval": "slipstream.forecast.search.plan:Interval",
        "Loss": "slipstream.forecast.search.plan:Loss",
        "Plan": "slipstream.forecast.search.plan:Plan",
        "Result": "slipstream.forecast.search.search:Result",
        "forecast": "slipstream.forecast.ask:forecast",
    },
)
