"""Judges a forecast on the device at hand: one step is forecast, and then run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from slipstream.bench.comm.start import check_torch
from slipstream.errors import SlipstreamError, UsageError
from slipstream.forecast import ForecastOptions, Plan, forecast
from slipstream.forecast.arguments import OPTIMIZERS
from slipstream.forecast.ask import Progress
from slipstream.forecast.simulate.job import Precision

HERE = "here"  # what `slipstream forecast calibrate` calls a device if it is not told


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStepCheck:
    """A step on one device, forecast and measured.

    Args:
        model: its name.
        batch: samples of the step.
        plan: Forecast of the step.
        steps: Number of timed steps.
        seconds: Seconds of a step, the median of the rounds.
        spread: seconds of a step in the fastest and in the slowest round.
        memory: bytes of the device at the most; None: it is a processor, whose memory the
            forecast does not replay.
    """

    model: str
    batch: int
    plan: Plan
    steps: int
    seconds: float
    spread: tuple[float, float]
    memory: int | None

    @property
    def alone(self) -> str:
        """Measurement in the form that `slipstream forecast --alone` accepts."""
        return f"{self.batch / self.seconds:.4g}@{self.plan.strategy.micro_batch}"

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "model": self.model,
            "batch": self.batch,
            "micro_batch": self.plan.strategy.micro_batch,
            "seconds": {**asdict(self.plan.seconds_per_step), "measured": self.seconds},
            "memory": {**asdict(self.plan.memory), "measured": self.memory},
            "limit": self.plan.limit,
            "steps": self.steps,
            "spread": self.spread,
            "alone": self.alone,
        }


def check(
    model: str,
    *,
    batch: int,
    device: str | None = None,
    hardware: str | None = None,
    shape: Sequence[int] | None = None,
    tokens: int | None = None,
    precision: str = "fp32",
    optimizer: str = "adam",
    seconds: float = 10.0,
    progress: Progress,
) -> DeviceStepCheck:
    """Forecast a step of one device, then train on the one at hand, and block for half a minute.

    Args:
        model: Name of a model that `slipstream.forecast.forecast` accepts, but no ONNX file; the
            model is made with weights.
        batch: samples of a step.
        device: Name of the device in the forecast; None for "here", the calibration in `hardware`.
        hardware: a data file with it, as `slipstream forecast calibrate` writes one.
        shape: Shape of one sample, if the model leaves it open.
        tokens: Tokens of a sequence.
        precision: Precision of matrix products.
        optimizer: "sgd", "momentum" or "adam".
        seconds: Seconds of timed steps.
        progress: told what is done.

    Raises:
        UsageError: an argument is not allowed.
        UnsupportedError: there is no PyTorch.
        SlipstreamError: the model does not fit on the device as a whole, or fails on it.
    """
    if device is None and hardware is None:
        raise UsageError(
            "say what this device is: device, as H100, or hardware, the file that slipstream"
            " forecast calibrate writes"
        )
    check_torch()
    from slipstream.bench.forecast import steps as forecast_steps
    from slipstream.forecast.trace.sources import source

    found = source(model, shape=shape, tokens=tokens)
    if found.made is None:
        raise UsageError(f"{model} cannot be trained: say a function that makes the module")
    options = ForecastOptions(
        batch=batch,
        own=f"1x{device or HERE}",
        hosts=1,
        hardware=hardware,
        shape=shape,
        tokens=tokens,
        precision=precision,
        optimizer=optimizer,
    )
    plan = _plan(model, options, progress)
    chosen = cast("Precision", precision)  # else it was not forecast
    training = forecast_steps.TrainingSetup(
        made=found.made,
        micro_batch=plan.strategy.micro_batch,
        micro_batches=plan.strategy.micro_batches,
        precision=chosen,
        whole=found.whole(chosen),
        optimizer=OPTIMIZERS[optimizer],
    )
    try:
        steps = forecast_steps.train(training, lambda what: progress(what, 0, 0), seconds=seconds)
    except RuntimeError as failure:  # of the user's code, or of the device
        raise SlipstreamError(f"a step of {model} failed on this device: {failure}") from failure
    return DeviceStepCheck(
        model=model,
        batch=batch,
        plan=plan,
        steps=steps.count,
        seconds=steps.seconds,
        spread=(steps.low, steps.high),
        memory=steps.memory,
    )


def _plan(model: str, options: ForecastOptions, progress: Progress) -> Plan:
    """Return the plan of one device without activation checkpoints."""
    result = forecast(model, options, progress=progress)
    device = (options.own or "")[2:]
    if not result.plans:
        why = "; ".join(f"{loss.what}: {loss.why}" for loss in result.losses)
        raise SlipstreamError(f"{model} cannot be trained on one {device}: {why}")
    plan = result.plans[0]
    if plan.strategy.checkpoint:
        raise UsageError(
            f"batch is {options.batch}, with which {model} fits on one {device} only with"
            " activation checkpoints: set a smaller batch"
        )
    return plan
