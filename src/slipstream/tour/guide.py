"""The tour: its options, and its steps one after another."""

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

# limit for the forecast duration of the training, so that the tour takes about five minutes
TRAIN_SECONDS = 140.0
ALONE_STEPS = 150  # number of steps in which the rate without communication is measured
QUICK_SAMPLES = 4096
SEARCH_SECONDS, QUICK_SEARCH_SECONDS = 40.0, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TourSpec:
    """Options of the tour.

    Args:
        output: Folder for all files that the tour writes.
        ranks: Number of ranks of the training, each with one core.
        epochs: Number of epochs of the training. None chooses as many epochs as the tour has time
            for, according to the forecast, and at most the demo's ten.
        quick: Whether to use only a part of the images, which makes the numbers less exact.
        stream: Stream to which the output of the training is written.
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


class TourView(Protocol):
    """Interface of the tour's displays."""

    def begin(self, title: str) -> None:
        """Begin the next step."""
        ...

    def progress(self, what: str, share: float) -> None:
        """Show the current activity of a step, and the finished share of the step, 0 to 1."""
        ...

    def forecast(self, forecasts: Forecasts) -> None:
        """Show the forecast of the training."""
        ...

    def trained(self, forecasts: Forecasts, trained: Trained) -> None:
        """Show the results of the training next to the forecasts."""
        ...

    def compiled(self, report: Report, package: Path) -> None:
        """Show the compiled model."""
        ...

    def answered(self, answered: Answered) -> None:
        """Show the answers of the server."""
        ...


def tour(spec: TourSpec, view: TourView) -> Toured:
    """Run the tour, which takes up to five minutes.

    Args:
        spec: Options of the tour.
        view: Display that is called during each step.

    Raises:
        UsageError: an epoch has fewer images than one step of all ranks.
        ConfigError: the images cannot be downloaded.
        SlipstreamError: a step failed; the message quotes the step's output.
    """
    begin = time.monotonic()
    if spec.ranks * example.BATCH > spec.samples:
        raise UsageError(
            f"ranks is {spec.ranks}, and each rank takes {example.BATCH} images per step; allowed:"
            f" up to {spec.samples // example.BATCH}"
        )
    example.fetch()
    spec.output.mkdir(parents=True, exist_ok=True)
    view.begin(f"Forecast the training of the demo on {_ranks(spec.ranks)} of one core each")
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
    view.begin("Serve the model, and classify test images")
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


def _forecast(spec: TourSpec, view: TourView) -> Forecasts:
    """Forecast the training, after measurements of this machine and of single training steps."""
    hardware = spec.output / "here.toml"
    calibrate(
        hardware,
        quick=spec.quick,
        progress=lambda what, done, total: view.progress(what, 0.8 * done / total),
    )
    view.progress("steps without communication", 0.8)
    alone = _alone(spec.output / "alone", spec.ranks)
    view.progress("forecast", 0.9)
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
    """Return the mean images per second of a rank while all ranks train without communication.

    The cores of the ranks share caches and memory, so the ranks slow one another down.
    """
    samples = ALONE_STEPS * example.BATCH

    def one(rank: int) -> float:
        folder = output / str(rank)
        return train(folder, ranks=1, epochs=1, samples=samples, stream=None).rate

    with ThreadPoolExecutor(ranks) as pool:
        return statistics.mean(pool.map(one, range(ranks)))


def _ranks(count: int) -> str:
    return "one rank" if count == 1 else f"{count} ranks"
