"""Options of a forecast, as one value that the command line builds and the search reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """Options of one forecast; only `batch` is required.

    Args:
        batch: Global batch size: samples per step over all devices.
        shape: Shape of one sample (default None: the model defines the shape).
        tokens: Sequence length in tokens (default None: the length the model was trained with).
        gpus: Names of the devices that may be rented (default empty: all).
        clouds: Names of the clouds to rent from (default empty: all).
        markets: Markets to rent in, "on-demand" and "spot" (default on-demand only).
        own: Number and name of the devices in each host that the user owns, such as "8xA100"
            (default None: hosts are rented).
        max_hosts: Maximum number of the user's own hosts (default None: limited by `max_devices`
            only).
        price: Price of one of the user's own hosts in dollars per hour (default None: unknown).
        network: Network between hosts, such as "400g" or "infiniband-ndr" (default None: the
            network of the offer; the user's own hosts have no network).
        hardware: Path of a data file that `slipstream forecast calibrate` wrote, or of a folder of
            such files, with devices, links, offers and measured rates (default None: only the
            files shipped with Slipstream).
        max_devices: Maximum number of devices of a plan (default 64).
        samples: Number of samples per epoch (default None: unknown).
        epochs: Number of epochs to train; requires `samples` (default None: unknown).
        total_tokens: Number of tokens to train on, an alternative to `epochs` (default None:
            unknown).
        deadline: Maximum training time in seconds (default None: no limit); requires `epochs` or
            `total_tokens`.
        budget: Maximum cost in dollars (default None: no limit); requires prices, and `epochs` or
            `total_tokens`.
        precision: Data type of matrix products: "fp32", "tf32", "fp16" or "bf16" (default None:
            the 16-bit type that each device supports in hardware, else "fp32").
        optimizer: Optimizer: "sgd", "momentum" or "adam" (default "adam").
        runtime: Name of a framework with calibrated parameters (default "pytorch2").
        codec: Compression of gradients between hosts: "none", "fp16", "bf16", "int8", or "any" for
            the fastest of these four (default "none").
        local_steps: Number of steps between two exchanges of local SGD; a value above 1 adds local
            SGD to the strategies that are tried (default 1).
        alone: Measured throughput of one of the user's own devices, as a pair of samples per second
            and micro-batch size (default None: not measured). A measured throughput narrows all
            prediction intervals.
        input_rate: Samples per second that one host reads and decodes (default None: unlimited).
        observations: Path of the file in which `slipstream run --plan` writes what runs took; runs
            of the same kind correct the durations (default None: no corrections).
        search_seconds: Time limit of the search in seconds, counted from the call of `forecast`
            (default None: no limit). If no plan has been found within the limit, the search ends at
            its first plan.
    """

    batch: int
    shape: Sequence[int] | None = None
    tokens: int | None = None
    gpus: Sequence[str] = ()
    clouds: Sequence[str] = ()
    markets: Sequence[str] = ("on-demand",)
    own: str | None = None
    max_hosts: int | None = None
    price: float | None = None
    network: str | None = None
    hardware: str | None = None
    max_devices: int = 64
    samples: int | None = None
    epochs: float | None = None
    total_tokens: float | None = None
    deadline: float | None = None
    budget: float | None = None
    precision: str | None = None
    optimizer: str = "adam"
    runtime: str = "pytorch2"
    codec: str = "none"
    local_steps: int = 1
    alone: tuple[float, int] | None = None
    input_rate: float | None = None
    observations: str | None = None
    search_seconds: float | None = None
