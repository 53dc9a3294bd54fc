"""Measures the machine at hand for `slipstream forecast calibrate`: a device and its links."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

from slipstream.bench.comm import table as comm_table
from slipstream.bench.comm.measure import CommSpec, measure
from slipstream.bench.comm.start import check_torch
from slipstream.errors import UsageError
from slipstream.forecast.calibrate import comm
from slipstream.forecast.calibrate.line import LinkSpeed, TimedAllReduce, fit
from slipstream.forecast.calibrate.measured import Calibration

SIZES = (64_000, 256_000, 1_000_000, 4_000_000, 16_000_000, 64_000_000)
QUICK_SIZES = (64_000, 1_000_000, 16_000_000)
# What else runs may hold up small all-reduces for longer than large ones take.
TRIES = 4

Progress = Callable[[str, int, int], None]


def calibrate(
    name: str,
    *,
    network: Path | None = None,
    threads: int | None = None,
    quick: bool = False,
    progress: Progress,
) -> Calibration:
    """Measure this machine, and block for about a minute.

    Args:
        name: Name of the device in forecasts: letters, digits, "-", "_" and ".".
        network: file of `slipstream bench comm -o` between hosts; None: links of hosts are
            not measured. One of the ranks of a host takes the place of what is measured here.
        threads: Threads of a rank on a machine without a GPU, on which a device is that number of
            processors; None for PyTorch's default, which is all of them.
        quick: Whether to measure for a few seconds only, with inaccurate results; for tests.
        progress: told what is measured, how much was and how much there is.

    Raises:
        ConfigError: the file cannot be read.
        UsageError: the name is not allowed, or nothing in the file can be used.
        UnsupportedError: there is no PyTorch.
    """
    if not name or not all(each.isalnum() or each in "-_." for each in name):
        raise UsageError(f"the name is {name!r}; allowed: letters, digits, -, _ and .")
    check_torch()
    timed = None if network is None else comm.read(network)
    from slipstream.bench.forecast import device as forecast_device

    stages = forecast_device.STAGES + (0 if timed and not timed.is_network else 1)
    done = iter(range(stages))
    device = forecast_device.measure(
        lambda what: progress(what, next(done), stages), threads=threads, quick=quick
    )
    if timed and not timed.is_network:
        ranks, hosts = fit(timed.samples), None
    else:
        progress("ranks of this host", next(done), stages)
        ranks, hosts = _ranks(quick), fit(timed.samples) if timed else None
    progress("", stages, stages)
    day = datetime.date.today().isoformat()
    return Calibration(name=name, day=day, device=device, ranks=ranks, hosts=hosts)


def _ranks(quick: bool) -> LinkSpeed | None:
    """Return the link between the ranks of this host; None with a single GPU."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus == 1:
        return None
    spec = CommSpec(
        local=gpus or 2,
        sizes=QUICK_SIZES if quick else SIZES,
        peers=("nccl",) if gpus else (),
        rounds=2 if quick else 5,
    )
    return fit_noisy(lambda: comm.timed(comm_table.as_json(measure(spec)), "bench comm").samples)


def fit_noisy(timed: Callable[[], Sequence[TimedAllReduce]]) -> LinkSpeed:
    """Return the line through samples, with more of them where larger ones took no longer.

    Args:
        timed: measures samples of all sizes; called `TRIES` times at most.

    Raises:
        UsageError: larger ones took no longer in all of these together.
    """
    samples = [*timed()]
    for _ in range(TRIES - 1):
        try:
            return fit(samples)
        except UsageError:
            samples += timed()
    return fit(samples)
