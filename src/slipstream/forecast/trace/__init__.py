"""Workloads from PyTorch modules, traced on tensors that have no memory.

from slipstream.forecast.trace import trace

workload = trace(MyModel, lambda: (torch.zeros(8, 3, 224, 224),), name="my-model", samples=8)
"""

from __future__ import annotations

from slipstream.forecast.trace.module import trace as trace

__all__ = ["trace"]
