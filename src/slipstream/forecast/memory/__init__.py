"""The memory that training needs on each device, and changes that make a strategy fit.

from slipstream.forecast.memory import replay

peak = replay(workload, Strategy(data=8, zero=1), optimizer=Optimizer.ADAM)
"""

from __future__ import annotations

from slipstream.forecast.memory.allocator import Allocator as Allocator
from slipstream.forecast.memory.checkpoint import checkpointed as checkpointed
from slipstream.forecast.memory.ledger import FullError as FullError
from slipstream.forecast.memory.remedy import Change as Change
from slipstream.forecast.memory.remedy import fits as fits
from slipstream.forecast.memory.replay import PeakMemory as PeakMemory
from slipstream.forecast.memory.replay import ReplayOptions as ReplayOptions
from slipstream.forecast.memory.replay import replay as replay
from slipstream.forecast.memory.units import RepeatedModule as RepeatedModule
from slipstream.forecast.memory.units import units as units

__all__ = [
    "Allocator",
    "Change",
    "FullError",
    "PeakMemory",
    "RepeatedModule",
    "ReplayOptions",
    "checkpointed",
    "fits",
    "replay",
    "units",
]
