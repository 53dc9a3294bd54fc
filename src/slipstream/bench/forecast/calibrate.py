"""Measurement of this machine's device and links for `slipstream forecast calibrate`."""

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
# Highest number of measurements until the fit succeeds. Other programs may delay small allreduces
# so much that large ones seem to take no longer.
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
    """Measure this machine, which takes about a minute.

    Args:
        name: Name of the device in forecasts: letters, digits, "-", "_" and ".".
        network: Path of a file that `slipstream bench comm -o` wrote (default None: links between
            hosts are not measured). If the file is from a measurement on one host, it replaces the
            measurement of the link between the ranks of this host.
        threads: Number of threads of a rank on a machine without a GPU; this is also the number of
            processors of the forecast's device (default None: PyTorch's default, all processors).
        quick: Whether to measure for a few seconds only, which gives inaccurate results, for tests
            (default False).
        progress: Function that receives the name of the next stage, the number of finished stages
            and the number of all stages.

    Raises:
        ConfigError: the file cannot be read.
        UsageError: the name is not allowed, or the file has no usable measurement.
        UnsupportedError: PyTorch is not installed.
    """
    if not name or not all(character.isalnum() or character in "-_." for character in name):
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
    """Return the speed of the link between the ranks of this host; None with a single GPU."""
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
    """Fit the speed of a link to timed allreduces; if the fit fails, time more and fit again.

    Args:
        timed: Function that times allreduces of all sizes; it is called at most `TRIES` times.

    Raises:
        UsageError: in all measurements together, large allreduces took no longer than small ones.
    """
    samples = [*timed()]
    for _ in range(TRIES - 1):
        try:
            return fit(samples)
        except UsageError:
            samples += timed()
    return fit(samples)
