"""Devices, links and prices from data files, which users can extend.

hardware = load("my-cluster/")
hardware.device("a100").tflops["bfloat16"]
"""

from __future__ import annotations

from slipstream.forecast.hardware.tables import Device as Device
from slipstream.forecast.hardware.tables import FlowCap as FlowCap
from slipstream.forecast.hardware.tables import Hardware as Hardware
from slipstream.forecast.hardware.tables import Link as Link
from slipstream.forecast.hardware.tables import Offer as Offer
from slipstream.forecast.hardware.tables import load as load

__all__ = ["Device", "FlowCap", "Hardware", "Link", "Offer", "load"]
