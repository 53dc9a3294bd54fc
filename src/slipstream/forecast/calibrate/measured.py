"""Measurements of a machine, and the conversion of measurements to tables of a data file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slipstream.forecast.calibrate.line import LinkSpeed
from slipstream.forecast.simulate.compute import loading_tflops

RUNTIME = "pytorch2"  # The runtime that `slipstream forecast` assumes if none is named.


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedDevice:
    """Measurements of a device: rates that its kernels reach, used in place of peak rates.

    Args:
        kind: Kind of the device: "gpu", or "cpu" for all processors of a host.
        title: Name that the device reports.
        memory_gib: Memory of the device in GiB.
        context_mib: Memory in MiB that a process uses before its first tensor (default None:
            unknown).
        processors: Number of multiprocessors of a GPU, or of cores of a CPU.
        cache_mib: Size of the last-level cache in MiB.
        tflops: Rates in TFLOP/s of matrix products with a long summed dimension, by dtype;
            "float32" is required.
        half_sum: Length of the summed dimension at which a matrix product in the fastest dtype
            reaches half of that dtype's rate in `tflops`.
        vector_half_sum: Length of the summed dimension at which a matrix product in float32 reaches
            half of the float32 rate in `tflops`.
        windows: Rate of convolutions, relative to matrix products, by dtype.
        winograd: Rate of 3x3 convolutions, relative to 1x1 convolutions, in float32.
        depthwise: Rate of depthwise convolutions, in 16 bits on a GPU and in float32 on a CPU,
            relative to matrix products in float32.
        memory_gb_per_s: Memory bandwidth in 1e9 bytes per second, reads and writes together.
        gather: Share of the memory bandwidth that lookups of embedding rows reach.
        batch_norms: Share of the memory bandwidth that batch norms reach, by dtype.
        forward_us: Host time in microseconds per operator of the forward pass.
        backward_us: Host time in microseconds per operator of the backward pass.
        update_us: Host time in microseconds per parameter that the optimizer changes.
        gap_us: Microseconds per operator when small kernels run as a CUDA graph, so that the device
            never waits for the host (default None: the device is a CPU; the forecast uses the host
            time per operator instead).
        host_gb_per_s: Rate of copies from host memory to device memory in 1e9 bytes per second
            (default None: the device is a CPU, which uses host memory).
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
    """All measurements of a machine.

    Args:
        name: Name by which forecasts refer to the device.
        day: Date of the measurement, such as 2026-11-24.
        device: Measurements of one device of the machine.
        ranks: Link between ranks of one host (default None: not measured).
        hosts: Link between hosts (default None: not measured).
    """

    name: str
    day: str
    device: CalibratedDevice
    ranks: LinkSpeed | None = None
    hosts: LinkSpeed | None = None


def tables(calibration: Calibration) -> dict[str, Any]:
    """Return the tables of the data file: devices, links, kernel rates and framework overheads.

    Args:
        calibration: Measurements of a machine.
    """
    content: dict[str, Any] = {
        "device": [_device(calibration)],
        "link": list(_links(calibration)),
        "rates": _rates(calibration.device),
        "runtimes": {RUNTIME: _runtime(calibration.device)},
    }
    if wire := _wire(calibration):
        content["wire"] = wire
    return content


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
    """Return the measured links, and the link of a device to its host's memory."""
    device = calibration.device
    rate = device.host_gb_per_s or device.memory_gb_per_s
    speeds = [("host", "host", LinkSpeed(1e-6, rate * 1e9))]
    if calibration.ranks:
        speeds.append(("ranks", "device", calibration.ranks))
    if calibration.hosts:
        speeds.append(("network", "network", calibration.hosts))
    return [
        {
            "name": f"{calibration.name}-{name}",
            "kind": kind,
            "gbyte_per_s": line.rate / 1e9,
            "latency_us": max(line.latency * 1e6, 1e-3),
            "source": f"measured {calibration.day}",
        }
        for name, kind, line in speeds
    ]


def _rates(device: CalibratedDevice) -> dict[str, float]:
    """Return the shares of the device's rates that kernels reach, and related parameters.

    The shares of matrix, TF32, vector and memory rates are 1, because the rates in the data file
    are not peaks but rates that kernels reached.
    """
    shares: dict[str, float] = dict.fromkeys(("matrix", "tf32", "vector", "memory"), 1.0)
    for name in ("half_sum", "vector_half_sum", "winograd", "gather"):
        shares[name] = getattr(device, name)
    vector = device.tflops["float32"]
    # Depthwise convolutions are timed in 16 bits on GPUs, where they take half as long as in 32
    # bits.
    widths = 2 if device.kind == "gpu" else 1
    shares["depthwise"] = (
        device.depthwise * vector / loading_tflops(vector, device.processors) / widths
    )
    for dtype, name in (("float32", "vector"), (_half(device), "matrix")):
        if dtype in device.windows:
            shares[f"{name}_windows"] = device.windows[dtype]
    issue = (device.forward_us + device.backward_us) / 2
    shares["gap_us"] = issue if device.gap_us is None else device.gap_us
    return shares


def _wire(calibration: Calibration) -> dict[str, float]:
    """Return the shares of link rates that collectives reach; they are 1 for measured links."""
    shares: dict[str, float] = {}
    if calibration.ranks:
        shares["inside"] = 1.0
    if calibration.hosts:
        shares["between"] = 1.0
    return {**shares, "launch_us": 0.0, "ramp_us": 0.0} if shares else {}


def _runtime(device: CalibratedDevice) -> dict[str, float]:
    """Return the overheads of the framework: host time per operator, and the cost of batch norms.

    The result also has factors by which the forecast multiplies the times of kernels. All factors
    except those of batch norms are 1, because the rates in the data file were measured.
    """
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


def _half(device: CalibratedDevice) -> str:
    """Return the 16-bit dtype in which the device computes matrix products."""
    return "bfloat16" if "bfloat16" in device.tflops else "float16"
