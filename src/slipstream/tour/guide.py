"""The steps of the tour in their order."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from slipstream.errors import UsageError
from slipstream.infer.package.report import Report
from slipstream.tour import example
from slipstream.tour.compiling import compile_checkpoint
from slipstream.tour.prediction import calibrate, predict
from slipstream.tour.results import Forecasts, Toured
from slipstream.tour.serving import Answered, ask, served
from slipstream.tour.training import Trained, train

TRAIN_SECONDS = 140.0  # that steps may take by their forecast: the tour takes five minutes
ALONE_STEPS = 150
QUICK_SAMPLES = 4096
SEARCH_SECONDS, QUICK_SEARCH_SECONDS = 40.0, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TourSpec:
    """The options of the tour.

    Args:
        output: Folder for all files of the tour.
        ranks: Ranks of the training, each with one core.
        epochs: Epochs of the training; None chooses as many of the demo's ten as the forecast
            has time for.
        quick: True to use a part of the images, which makes the numbers less exact.
        stream: Stream for the output of the training.
    """

    output: Path
    ranks: int
    epochs: int | None
    quick: bool
    stream: TextIO

    @property
    def samples(self) -> int:
        """Number of images in an epoch."""
        return QUICK_SAMPLES if self.quick else example.SAMPLES


class View(Protocol):
    """The interface of everything that shows the tour."""

    def begin(self, title: str) -> None:
        """Begin the next step."""
        ...

    def progress(self, what: str, share: float) -> None:
        """Show the current activity of a step, and the share that is finished."""
        ...

    def forecast(self, forecasts: Forecasts) -> None:
        """Show the forecast of the training."""
        ...

    def trained(self, forecasts: Forecasts, trained: Trained) -> None:
        """Show the training beside its forecasts."""
        ...

    def compiled(self, report: Report, package: Path) -> None:
        """Show the compiled model."""
        ...

    def answered(self, answered: Answered) -> None:
        """Show the answers of the server."""
        ...


def tour(spec: TourSpec, view: View) -> Toured:
    """Run the tour; blocks for up to five minutes.

    Args:
        spec: Options of the tour.
        view: Display that receives each step.

    Raises:
        UsageError: a step of so many ranks takes more pictures than there are.
        ConfigError: the pictures are not here and cannot be downloaded.
        SlipstreamError: a step failed; with what it said.
    """
    begin = time.monotonic()
    if spec.ranks * example.BATCH > spec.samples:
        raise UsageError(
            f"the ranks are {spec.ranks}, and each takes {example.BATCH} pictures of a step;"
            f" allowed: up to {spec.samples // example.BATCH}"
        )
    example.fetch()
    spec.output.mkdir(parents=True, exist_ok=True)
    view.begin(f"Forecast: what does the demo take on {_ranks(spec.ranks)} of one core each?")
    forecasts = _forecast(spec, view)
    view.forecast(forecasts)
    view.begin("Train")
    trained = train(
        spec.output,
        ranks=spec.ranks,
        epochs=forecasts.epochs,
        samples=spec.samples,
        stream=spec.stream,
    )
    view.trained(forecasts, trained)
    view.begin("Compile the checkpoint")
    package = spec.output / "fashion.slip"
    seconds = QUICK_SEARCH_SECONDS if spec.quick else SEARCH_SECONDS
    report = compile_checkpoint(trained.checkpoint, package, seconds=seconds, tell=view.progress)
    view.compiled(report, package)
    view.begin("Serve it, and ask")
    with served(package) as url:
        answered = ask(url)
    view.answered(answered)
    return Toured(
        forecasts=forecasts,
        trained=trained,
        report=report,
        package=package,
        answered=answered,
        seconds=time.monotonic() - begin,
    )


def _forecast(spec: TourSpec, view: View) -> Forecasts:
    """Measure this machine and ranks that train alone; forecast their joint training."""
    hardware = spec.output / "here.toml"
    calibrate(
        hardware,
        quick=spec.quick,
        progress=lambda what, done, of: view.progress(what, 0.8 * done / of),
    )
    view.progress("steps without exchange", 0.8)
    alone = _alone(spec.output / "alone", spec.ranks)
    view.progress("the forecast", 0.9)
    kernels = predict(hardware, ranks=spec.ranks, samples=spec.samples)
    steps = predict(hardware, ranks=spec.ranks, samples=spec.samples, alone=alone)
    in_time = min(example.EPOCHS, int(TRAIN_SECONDS / steps.epoch.value))
    return Forecasts(
        ranks=spec.ranks,
        epochs=spec.epochs or max(1, in_time),
        alone=alone,
        kernels=kernels,
        steps=steps,
    )


def _alone(output: Path, ranks: int) -> float:
    """Return the images per second of one rank while the other ranks compute beside it.

    The cores share caches and memory. Each rank trains alone and exchanges nothing.
    """
    samples = ALONE_STEPS * example.BATCH

    def one(rank: int) -> float:
        folder = output / str(rank)
        return train(folder, ranks=1, epochs=1, samples=samples, stream=None).rate

    with ThreadPoolExecutor(ranks) as pool:
        return statistics.mean(pool.map(one, range(ranks)))


def _ranks(count: int) -> str:
    return "one rank" if count == 1 else f"{count} ranks"
