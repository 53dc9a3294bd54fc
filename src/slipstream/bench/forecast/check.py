"""Check of a forecast on this machine's device: one step is forecast and then measured."""

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

HERE = "here"  # name that `slipstream forecast calibrate` gives to a device by default


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStepCheck:
    """Forecast and measurement of a step on one device.

    Args:
        model: Name of the model.
        batch: Number of samples in the step.
        plan: Training plan for one device, with the forecast of the step.
        steps: Number of timed steps.
        seconds: Seconds per step, the median of the rounds.
        spread: Seconds per step in the fastest round and in the slowest round.
        memory: Bytes in use on the device after the steps; None without a GPU, because the host's
            memory is not forecast.
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
        """Measured samples per second, as RATE@MICRO_BATCH for `slipstream forecast --alone`."""
        return f"{self.batch / self.seconds:.4g}@{self.plan.strategy.micro_batch}"

    def as_json(self) -> dict[str, Any]:
        """Return the forecast and the measurement as a JSON-compatible dictionary."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCheckOptions:
    """Options of a check.

    Args:
        batch: Number of samples in a step.
        device: Name of the device in the forecast (default None: "here", the default name of a
            calibrated device).
        hardware: Path of a data file that `slipstream forecast calibrate` wrote (default None).
        shape: Shape of one sample (default None: the shape that the model defines).
        tokens: Number of tokens in a sequence (default None: the length with which the model was
            trained).
        precision: Precision of matrix products (default "fp32").
        optimizer: Name of the optimizer: "sgd", "momentum" or "adam" (default "adam").
        seconds: Duration of the measurement in seconds (default 10).

    Raises:
        UsageError: neither a device nor a data file is given.
    """

    batch: int
    device: str | None = None
    hardware: str | None = None
    shape: Sequence[int] | None = None
    tokens: int | None = None
    precision: str = "fp32"
    optimizer: str = "adam"
    seconds: float = 10.0

    def __post_init__(self) -> None:
        """Check the values."""
        if self.device is None and self.hardware is None:
            raise UsageError(
                "the device is unknown: set device, such as H100, or hardware, the file that"
                " slipstream forecast calibrate writes"
            )

    @property
    def forecast(self) -> ForecastOptions:
        """These options in the form that `slipstream.forecast.forecast` accepts, for one device."""
        return ForecastOptions(
            batch=self.batch,
            own=f"1x{self.device or HERE}",
            max_hosts=1,
            hardware=self.hardware,
            shape=self.shape,
            tokens=self.tokens,
            precision=self.precision,
            optimizer=self.optimizer,
        )


def check(model: str, options: StepCheckOptions, *, progress: Progress) -> DeviceStepCheck:
    """Forecast a training step on one device, and then measure the step on this machine.

    The check takes about half a minute.

    Args:
        model: Name of a model that `slipstream.forecast.forecast` accepts; ONNX files are not
            allowed. The check allocates the model's weights and trains the model.
        options: Options of the forecast and of the measurement.
        progress: Function that receives the name and the number of each stage.

    Raises:
        UsageError: an option is not allowed.
        UnsupportedError: PyTorch is not installed.
        SlipstreamError: the complete model does not fit on the device, or a step fails.
    """
    check_torch()
    from slipstream.bench.forecast import steps as forecast_steps
    from slipstream.forecast.trace.sources import source

    model_source = source(model, shape=options.shape, tokens=options.tokens)
    if model_source.made is None:
        raise UsageError(f"{model} cannot be trained: give a function that makes the module")
    plan = _plan(model, options.forecast, progress)
    precision = cast("Precision", options.precision)  # `forecast` has checked the value
    training = forecast_steps.TrainingSetup(
        architecture=model_source.made,
        micro_batch=plan.strategy.micro_batch,
        micro_batches=plan.strategy.micro_batches,
        precision=precision,
        all_16_bits=model_source.whole(precision),
        optimizer=OPTIMIZERS[options.optimizer],
    )
    try:
        steps = forecast_steps.train(
            training, lambda what: progress(what, 0, 0), seconds=options.seconds
        )
    except RuntimeError as failure:  # raised by the user's code or by the device
        raise SlipstreamError(f"a step of {model} failed on this device: {failure}") from failure
    return DeviceStepCheck(
        model=model,
        batch=options.batch,
        plan=plan,
        steps=steps.count,
        seconds=steps.seconds,
        spread=(steps.low, steps.high),
        memory=steps.memory,
    )


def _plan(model: str, options: ForecastOptions, progress: Progress) -> Plan:
    """Return the training plan for one device; fail if it needs activation checkpoints."""
    result = forecast(model, options, progress=progress)
    device = (options.own or "")[2:]
    if not result.plans:
        reasons = "; ".join(f"{loss.what}: {loss.why}" for loss in result.losses)
        raise SlipstreamError(f"{model} cannot be trained on one {device}: {reasons}")
    plan = result.plans[0]
    if plan.strategy.checkpoint:
        raise UsageError(
            f"batch is {options.batch}; with it {model} fits on one {device} only with activation"
            " checkpoints: set a smaller batch"
        )
    return plan
