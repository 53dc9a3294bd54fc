"""What was measured of a machine, as the forecast's devices, links and shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slipstream.forecast.calibrate.line import Line
from slipstream.forecast.simulate.compute import loading_tflops

RUNTIME = "pytorch2"  # what `slipstream forecast` takes where no framework is named


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDevice:
    """A device, with what its kernels reach in the place of peaks.

    Args:
        kind: "gpu", or "cpu": all processors of a host.
        title: what it calls itself.
        memory_gib: of it.
        context_mib: of that, what a process has without any tensor; None: it is not known.
        processors: of it.
        cache_mib: the last level's.
        tflops: 1e12 FLOP/s of products of matrices with long sums by dtype, "float32" among them.
        half_sum: length of a sum at which a product of the fastest dtype reaches half of that.
        vector_half_sum: that of a product in float32.
        windows: share of that which convolutions reach, by dtype.
        winograd: rate of convolutions of 3x3 over that of 1x1, in float32.
        depthwise: share of float32's rate that convolutions of one channel reach, in the fastest
            dtype.
        memory_gb_per_s: 1e9 bytes per second, read and written.
        gather: share of that which rows of embeddings reach.
        batch_norms: share of that which batch norms reach, by dtype.
        forward_us: of the host, per operator of the forward pass.
        backward_us: of the host, per operator of the backward pass.
        update_us: of the host, per parameter that the optimizer changes.
        gap_us: from one small kernel to the next where the host is ahead; None: the host is the
            device, and what issues operators delays those that follow.
        host_gb_per_s: from the host's memory to the device's; None: it is the same.
    """

    kind: Literal["gpu", "cpu"]
    title: str
    memory_gib: float
    processors: int
    cache_mib: float
    tflops: Mapping[str, float]
    half_sum: float
    vector_half_sum: float
    windows: Mapping[str, float]
    winograd: float
    depthwise: float
    memory_gb_per_s: float
    gather: float
    batch_norms: Mapping[str, float]
    forward_us: float
    backward_us: float
    update_us: float
    gap_us: float | None = None
    context_mib: float | None = None
    host_gb_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A machine, complete.

    Args:
        name: by which forecasts find the device.
        day: on which it was measured, as 2026-11-24.
        device: of which there are some.
        ranks: a link of each rank to others of its host; None: not measured.
        hosts: a link of each host; None: not measured.
    """

    name: str
    day: str
    device: MeasuredDevice
    ranks: Line | None = None
    hosts: Line | None = None


def tables(calibration: Calibration) -> dict[str, Any]:
    """Returns what the data file has: devices and links, shares of rates, and the runtime.

    Args:
        calibration: of which it is made.
    """
    found: dict[str, Any] = {
        "device": [_device(calibration)],
        "link": list(_links(calibration)),
        "rates": _rates(calibration.device),
        "runtimes": {RUNTIME: _runtime(calibration.device)},
    }
    if wire := _wire(calibration):
        found["wire"] = wire
    return found


def _device(calibration: Calibration) -> dict[str, Any]:
    device = calibration.device
    ranks = f"{calibration.name}-ranks"
    return {
        "name": calibration.name,
        "kind": device.kind,
        "memory_gib": device.memory_gib,
        **({} if device.context_mib is None else {"context_mib": device.context_mib}),
        "memory_gb_per_s": device.memory_gb_per_s,
        "processors": device.processors,
        "cache_mib": device.cache_mib,
        "tflops": dict(device.tflops),
        "device_link": ranks if calibration.ranks else f"{calibration.name}-host",
        "host_link": f"{calibration.name}-host",
        "year": int(calibration.day[:4]),
        "source": f"measured {calibration.day}: {device.title}",
    }


def _links(calibration: Calibration) -> list[dict[str, Any]]:
    """Links of ranks and of hosts as measured, and that of a device to its host's memory."""
    device = calibration.device
    rate = device.host_gb_per_s or device.memory_gb_per_s
    found = [("host", "host", Line(1e-6, rate * 1e9))]
    if calibration.ranks:
        found.append(("ranks", "device", calibration.ranks))
    if calibration.hosts:
        found.append(("network", "network", calibration.hosts))
    return [
        {
            "name": f"{calibration.name}-{name}",
            "kind": kind,
            "gbyte_per_s": line.rate / 1e9,
            "latency_us": max(line.latency * 1e6, 1e-3),
            "source": f"measured {calibration.day}",
        }
        for name, kind, line in found
    ]


def _rates(device: MeasuredDevice) -> dict[str, float]:
    """Shares of what was measured, which is what kernels reach: all of it."""
    found: dict[str, float] = dict.fromkeys(("matrix", "tf32", "vector", "memory"), 1.0)
    for name in ("half_sum", "vector_half_sum", "winograd", "gather"):
        found[name] = getattr(device, name)
    vector = device.tflops["float32"]
    # What was timed on a GPU has 16 bits, which take half of the time of 32.
    widths = 2 if device.kind == "gpu" else 1
    found["depthwise"] = (
        device.depthwise * vector / loading_tflops(vector, device.processors) / widths
    )
    for dtype, name in (("float32", "vector"), (_half(device), "matrix")):
        if dtype in device.windows:
            found[f"{name}_windows"] = device.windows[dtype]
    issue = (device.forward_us + device.backward_us) / 2
    found["gap_us"] = issue if device.gap_us is None else device.gap_us
    return found


def _wire(calibration: Calibration) -> dict[str, float]:
    """Shares of links that were measured, which is all of them."""
    found: dict[str, float] = {}
    if calibration.ranks:
        found["inside"] = 1.0
    if calibration.hosts:
        found["between"] = 1.0
    return {**found, "launch_us": 0.0, "ramp_us": 0.0} if found else {}


def _runtime(device: MeasuredDevice) -> dict[str, float]:
    """What the host takes to issue operators; kernels are as they were measured."""
    return {
        "forward_us": device.forward_us,
        "backward_us": device.backward_us,
        "step_ms": 0.0,
        "update_us": device.update_us,
        "memory": 1.0,
        "compute": 1.0,
        "depthwise": 1.0,
        "batch_norm": 1 / device.batch_norms["float32"],
        "half_batch_norm": 1 / device.batch_norms.get(_half(device), 1.0),
    }


def _half(device: MeasuredDevice) -> str:
    """The dtype of 16 bits that it multiplies, if it does."""
    return "bfloat16" if "bfloat16" in device.tflops else "float16"
