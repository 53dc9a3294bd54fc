"""Forecast of model training: plans with their time, memory and cost.

    from slipstream.forecast import ForecastOptions, forecast

    options = ForecastOptions(batch=256, gpus=("A100", "H100"), precision="bf16")
    best = forecast("resnet50", options).plans[0]
    print(best.machine.name, best.hosts, best.strategy, best.seconds_per_step)

The package needs `pip install 'slipstream[forecast]'`, and PyTorch to trace models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream import lazy

if TYPE_CHECKING:
    from slipstream.forecast.ask import forecast as forecast
    from slipstream.forecast.options import ForecastOptions as ForecastOptions
    from slipstream.forecast.search.plan import Interval as Interval
    from slipstream.forecast.search.plan import Loss as Loss
    from slipstream.forecast.search.plan import Plan as Plan
    from slipstream.forecast.search.search import Result as Result

__all__ = ["ForecastOptions", "Interval", "Loss", "Plan", "Result", "forecast"]

# PyTorch is imported when a model is traced, and every other package at first use.
__getattr__ = lazy.attributes(
    "slipstream.forecast",
    "forecast",
    {
        "ForecastOptions": "slipstream.forecast.options:ForecastOptions",
        "Interval": "slipstream.forecast.search.plan:Interval",
        "Loss": "slipstream.forecast.search.plan:Loss",
        "Plan": "slipstream.forecast.search.plan:Plan",
        "Result": "slipstream.forecast.search.search:Result",
        "forecast": "slipstream.forecast.ask:forecast",
    },
)
