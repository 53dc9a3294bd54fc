"""Measurement of the latency of models on a GPU, with Slipstream, PyTorch and ONNX Runtime.

    report = measure_on_card(CardSpec(models=("resnet50",)))

A call begins with inputs in host memory and ends with results in host memory. Every contender
computes in the same precision. The contenders take turns in one process, because each needs a CPU
core only to start its work on the GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from slipstream.bench.infer.absences import Absences
from slipstream.bench.infer.card_contenders import (
    OURS,
    PEERS,
    PRECISIONS,
    CardModel,
    Run,
    load_ours,
    load_peer,
    ours,
)
from slipstream.bench.infer.models import find_model
from slipstream.bench.infer.samples import signal_to_noise
from slipstream.errors import UsageError
from slipstream.infer.engines.gpu.cards import device_title, parse_device, require_card

MODELS = ("resnet50", "bert_base")
WARM_UPS = 5  # calls before the first turn. Chosen by hand, not measured.
MOST_CALLS = 1000  # highest number of calls in a turn

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CardSpec:
    """Settings of a measurement on a GPU.

    Args:
        models: Models to measure; see `find_model` (default: ResNet-50 and BERT).
        peers: Names of competing contenders, from `PEERS` (default: all).
        batches: Numbers of rows of a call (default 1 and 32).
        precision: Precision of all contenders (default "fp16"), from `PRECISIONS`.
        device: Device, such as "cuda:1" (default "cuda"). Tests name "cpu".
        rounds: Number of rounds, at least 1; every contender has one turn in each (default 20).
        seconds: Length of a turn in seconds (default 0.2).
    """

    models: tuple[str, ...] = MODELS
    peers: tuple[str, ...] = tuple(PEERS)
    batches: tuple[int, ...] = (1, 32)
    precision: str = "fp16"
    device: str = "cuda"
    rounds: int = 20
    seconds: float = 0.2

    def __post_init__(self) -> None:
        """Check the values."""
        choice = parse_device(self.device)
        if choice.kind == "auto":
            raise UsageError(
                f"the device is {self.device!r}; allowed: cpu, cuda, or cuda:0 and so on"
            )
        object.__setattr__(self, "device", str(choice))
        for name in self.models:
            find_model(name)
        for name in self.peers:
            if name not in PEERS:
                raise UsageError(f"the peer is {name!r}; allowed: {', '.join(PEERS)}")
        if self.precision not in PRECISIONS:
            raise UsageError(
                f"the precision is {self.precision!r}; allowed: {', '.join(PRECISIONS)}"
            )
        if self.rounds < 1 or self.seconds <= 0 or not all(rows > 0 for rows in self.batches):
            raise UsageError(
                f"rounds is {self.rounds}, seconds {self.seconds}, batches {self.batches};"
                " allowed: rounds and batches from 1, seconds above 0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CardTiming:
    """Timing of one contender on one model.

    Args:
        contender: Name of the contender.
        seconds: Median seconds of a call in each round.
        snr_db: Signal-to-noise ratio of the outputs in dB, relative to PyTorch in float32 on the
            CPU.
        load_seconds: Seconds until the first result.
        peak_bytes: Memory of the GPU that the contender took while it was loaded, in bytes; 0 on a
            CPU.
    """

    contender: str
    seconds: tuple[float, ...]
    snr_db: float
    load_seconds: float
    peak_bytes: int

    @property
    def median(self) -> float:
        """Median seconds of a call."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class CardResult:
    """Results of one model with one number of rows.

    Args:
        model: Name of the model.
        batch: Number of rows of a call.
        timings: Timings of all contenders.
        notes: Sentences that say which contenders were left out, and why.
        failures: Sentences of `notes` about contenders that failed (default none).
    """

    model: str
    batch: int
    timings: tuple[CardTiming, ...]
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    def speed_up(self, peer: str) -> float | None:
        """Return how much faster Slipstream's best contender is than a peer; None without both."""
        by_name = {timing.contender: timing.median for timing in self.timings}
        best = min((by_name[name] for name in by_name if name.startswith(OURS)), default=None)
        return by_name[peer] / best if best is not None and peer in by_name else None


@dataclass(frozen=True, kw_only=True, slots=True)
class CardReport:
    """Results of a run of the benchmark on a GPU.

    Args:
        spec: Settings of the measurement.
        card: Number and name of the GPU.
        results: Results of each model and number of rows.
    """

    spec: CardSpec
    card: str
    results: tuple[CardResult, ...] = field(default=())


def measure_on_card(spec: CardSpec, tell: Tell = lambda text: None) -> CardReport:
    """Run the measurement; compiling takes minutes for each model.

    Args:
        spec: Settings of the measurement.
        tell: Function that receives a line of progress about each step (default: lines are
            dropped).

    Raises:
        SlipstreamError: there is no GPU, or Slipstream cannot run a model.
    """
    choice = parse_device(spec.device)
    if choice.kind != "cpu":
        require_card(spec.device)
    results = tuple(
        _result(spec, CardModel.of(name, rows, spec.device, spec.precision), tell)
        for name in spec.models
        for rows in spec.batches
    )
    kind = "cpu" if choice.kind == "cpu" else "cuda"
    return CardReport(spec=spec, card=device_title(kind, choice.card), results=results)


def _result(spec: CardSpec, model: CardModel, tell: Tell) -> CardResult:
    """Load all contenders of a model, compare their outputs, and let them take turns."""
    runs: dict[str, _Loaded] = {}
    absences = Absences(model.name)
    for name in (*spec.peers, *ours(spec.device, spec.precision)):
        tell(f"{model.name}, batch {model.batch}: {name} is loaded")
        load = load_ours if name.startswith(OURS) else load_peer
        with absences.noted(name):
            runs[name] = _Loaded.of(model, lambda load=load, name=name: load(name, model))
    tell(f"{model.name}, batch {model.batch}: {spec.rounds} rounds")
    calls = {name: item.run for name, item in runs.items()}
    seconds = _rounds(calls, model.inputs, spec, absences)
    timings = tuple(
        CardTiming(
            contender=name,
            seconds=tuple(seconds[name]),
            snr_db=item.snr_db,
            load_seconds=item.load_seconds,
            peak_bytes=item.peak_bytes,
        )
        for name, item in runs.items()
        if name in seconds
    )
    return CardResult(
        model=model.name,
        batch=model.batch,
        timings=timings,
        notes=tuple(absences.notes),
        failures=tuple(absences.failures),
    )


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A contender that is loaded: its call, and the measurements of loading it."""

    run: Run
    snr_db: float
    load_seconds: float
    peak_bytes: int

    @staticmethod
    def of(model: CardModel, load: Callable[[], Run]) -> _Loaded:
        """Load a contender, run it once, and compare its outputs."""
        before = _used_bytes(model.device)
        begin = time.perf_counter()
        run = load()
        outputs = run(model.inputs)
        taken = time.perf_counter() - begin
        snr_db = signal_to_noise([outputs], [dict(model.expected)])
        for _ in range(WARM_UPS):
            run(model.inputs)
        return _Loaded(run, snr_db, taken, max(_used_bytes(model.device) - before, 0))


def _used_bytes(device: str) -> int:
    """Return the memory that is in use on a GPU, in bytes; 0 for a CPU."""
    if device == "cpu":
        return 0
    import torch

    free, total = torch.cuda.mem_get_info(torch.device(device))
    return total - free


def _rounds(
    runs: Mapping[str, Run],
    inputs: Mapping[str, NDArray[Any]],
    spec: CardSpec,
    absences: Absences,
) -> dict[str, list[float]]:
    """Let the contenders take turns; return each contender's median seconds in each round.

    The order is reversed from round to round. A contender that fails has no further turns, and no
    entry in the result.
    """
    medians: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(spec.rounds):
        for name in list(medians)[:: 1 if number % 2 == 0 else -1]:
            turns = medians.pop(name)
            with absences.noted(name):
                turns.append(statistics.median(_turn(runs[name], inputs, spec.seconds)))
                medians[name] = turns
    return medians


def _turn(run: Run, inputs: Mapping[str, NDArray[Any]], seconds: float) -> list[float]:
    """Call a contender for some seconds, after one call that is not timed."""
    run(inputs)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < MOST_CALLS and (not taken or time.perf_counter() < end):
        begin = time.perf_counter()
        run(inputs)
        taken.append(time.perf_counter() - begin)
    return taken
