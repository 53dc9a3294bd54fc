"""Measurement of the latency of models with Slipstream and other engines, in every precision.

    report = measure(InferSpec(models=("resnet50",)))

Each contender has its own process, and all processes run on the same cores. The contenders take
turns. Slipstream compiles each model to have at least the signal-to-noise ratio of the fastest
competing engine. Nothing else should run on the machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

from slipstream.bench.infer.contenders import (
    CONTENDERS,
    EXPORTED,
    PACKAGE_BEST,
    PACKAGE_FP32,
    EngineContender,
    chosen,
    obstacle,
)
from slipstream.bench.infer.job import DISTURBED, InferTiming
from slipstream.bench.infer.models import find_model, model_folder
from slipstream.bench.infer.prepare import SECONDS
from slipstream.bench.infer.processes import Contestant, ProcessError, cores_of, run_to_end
from slipstream.bench.infer.samples import HELD_OUT, JUDGING, SampleSet
from slipstream.bench.infer.trial import ModelTrial, Tell
from slipstream.bench.zoo import ZOO
from slipstream.errors import UsageError
from slipstream.infer.graph import onnx_file
from slipstream.infer.graph.analysis import analyse

SURVEY_ROUNDS = 6  # rounds that find the fastest competitor, before the compilation
FAITHFUL_DB = 60.0  # signal-to-noise ratio above which outputs differ from float32 by rounding only
MARGIN_DB = 1.0  # added to the competitor's ratio, which differs between sets of inputs

Turns = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class InferSpec:
    """Settings of a measurement.

    Args:
        models: Models to measure, at least one. A model is given as its name in the zoo, or as
            package.module:name or path.py:name of a `ZooModel`.
        peers: Names of competing engines, from `contenders.PEERS` (default None: the default
            competitors).
        threads: Number of threads, and of cores, of every contender, at least 1.
        rounds: Number of rounds, at least 1; every contender has one turn in each.
        seconds: Length of a turn in seconds; a turn has at least one timed call.
        search_seconds: Time limit in seconds for each of Slipstream's two compilations of a model.
        unseen: Number of additional inputs, which no set in `samples` contains, on which the
            accuracy of the model compiled by Slipstream is checked (default 0).
        cache: Folder with files that the next run uses again: all except the models compiled by
            Slipstream (default None: a temporary folder).
    """

    models: tuple[str, ...] = tuple(ZOO)
    peers: tuple[str, ...] | None = None
    threads: int = 1
    rounds: int = 20
    seconds: float = 0.2
    search_seconds: float = 60.0
    unseen: int = 0
    cache: Path | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for name in self.models:
            find_model(name)
        chosen(self.peers)
        cores_of(self.threads)
        if self.rounds < 1 or self.seconds <= 0 or self.search_seconds <= 0 or self.unseen < 0:
            raise UsageError(
                f"rounds is {self.rounds}, seconds {self.seconds}, search {self.search_seconds},"
                f" unseen {self.unseen}; allowed: rounds from 1, seconds and search above 0,"
                " unseen from 0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelResult:
    """Results of one model.

    Args:
        model: Name of the model.
        flops: Number of operations in all matrix products of the exported model.
        bytes_moved: Bytes that the graph nodes of the exported model read and write.
        asked_db: Signal-to-noise ratio that the compilation by Slipstream had to reach, in dB.
        unseen_db: Signal-to-noise ratio of the compiled model on the additional inputs, in dB; None
            if there are no additional inputs.
        timings: Timings of all contenders.
    """

    model: str
    flops: int
    bytes_moved: int
    asked_db: float
    unseen_db: float | None = None
    timings: tuple[InferTiming, ...]

    @property
    def keeps_promise(self) -> bool:
        """Whether the compiled model is accurate enough on the additional inputs, too."""
        return self.unseen_db is None or self.unseen_db >= self.asked_db

    def of(self, contender: str) -> InferTiming | None:
        """Return the timing of one contender; None if the contender did not take part."""
        return next((timing for timing in self.timings if timing.contender == contender), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class InferReport:
    """Results of a run of the benchmark.

    Args:
        spec: Settings of the measurement.
        peaks: Peak rate of the cores in operations per second, by precision.
        results: Results of each model.
        notes: Sentences that say which contenders were left out, and why.
        failures: Sentences of `notes` about contenders that failed (default none).
    """

    spec: InferSpec
    peaks: dict[str, float]
    results: tuple[ModelResult, ...]
    notes: tuple[str, ...]
    failures: tuple[str, ...] = ()


def measure(spec: InferSpec, tell: Tell = lambda text: None) -> InferReport:
    """Run the measurement, which takes some minutes for each model.

    Args:
        spec: Settings of the measurement.
        tell: Function that receives a line of progress about each step (default: lines are
            dropped).

    Raises:
        SlipstreamError: a model cannot be exported, or cannot be compiled by Slipstream.
    """
    cores = cores_of(spec.threads)
    tell("measuring the peak rate of the cores")
    peaks = json.loads(run_to_end("infer.peak", str(spec.threads), cores).splitlines()[-1])
    notes: dict[str, None] = {}
    failures: list[str] = []
    results: list[ModelResult] = []
    for name in spec.models:
        with model_folder(spec.cache, name) as folder, ExitStack() as stack:
            trial = _EngineTrial(
                spec=spec, model=name, folder=folder, cores=cores, tell=tell, stack=stack
            )
            results.append(trial.result())
            notes.update(dict.fromkeys(trial.notes))
            failures += trial.failures
    return InferReport(
        spec=spec,
        peaks=peaks,
        results=tuple(results),
        notes=tuple(notes),
        failures=tuple(failures),
    )


@dataclass(kw_only=True)
class _EngineTrial(ModelTrial):
    """Measurement of one model with all engines.

    Args:
        spec: Settings of the measurement.
        cores: Cores on which every process runs.
        stack: Exit stack that ends the processes when it is closed.
    """

    spec: InferSpec
    cores: frozenset[int]
    stack: ExitStack

    def result(self) -> ModelResult:
        """Find the fastest competitor, compile to its accuracy, and then measure all contenders."""
        self._make(EXPORTED)
        contenders = [
            contender for contender in chosen(self.spec.peers) if self._can_run(contender)
        ]
        peers = self._start([contender for contender in contenders if not contender.is_ours])
        asked = self._asked(peers)
        self._make(PACKAGE_FP32)
        self._make(PACKAGE_BEST, asked)
        ours = self._start([contender for contender in contenders if contender.is_ours])
        timings = self._timings([*peers, *ours])
        self._note_disturbance(timings)
        unseen = self._unseen() if self.spec.unseen else None
        analysis = analyse(onnx_file.read(self.folder / EXPORTED))
        return ModelResult(
            model=self.model,
            flops=analysis.flops,
            bytes_moved=analysis.bytes_moved,
            asked_db=asked,
            unseen_db=unseen,
            timings=timings,
        )

    # ---- preparation ---------------------------------------------------------------------------

    def _can_run(self, contender: EngineContender) -> bool:
        """Return whether a contender can run here; make the file that a competing engine loads."""
        if contender.models and self.model not in contender.models:
            return False
        is_ready = contender.is_ours or not contender.file
        make = (lambda: None) if is_ready else partial(self._make, contender.file)
        return self.takes_part(contender.title, obstacle(contender, self.model), make)

    def _make(self, file: str, snr_db: float = 0.0) -> None:
        """Make a file unless it exists; Slipstream compiles its models anew in every run."""
        if file not in (PACKAGE_FP32, PACKAGE_BEST) and self.has(file):
            return
        job = self.job(
            file=file,
            threads=self.spec.threads,
            seconds=self.spec.search_seconds,
            snr_db=snr_db,
        )
        self.make("infer.prepare", job, self.cores)

    def _start(self, contenders: Sequence[EngineContender]) -> list[Contestant]:
        started: list[Contestant] = []
        for contender in contenders:
            self.tell(f"{self.model}: starting {contender.title}")
            job = self.job(contender=contender.name, threads=self.spec.threads)
            try:
                started.append(self.stack.enter_context(Contestant(job, self.cores)))
            except ProcessError as error:
                if contender.is_ours:
                    raise
                self.note_failure(contender.title, error)
        return started

    def drop(self, contestant: Contestant, error: ProcessError) -> None:
        """Note the failure of a competitor; the benchmark ends if Slipstream itself fails."""
        contender = CONTENDERS[contestant.job.contender]
        if contender.is_ours:
            raise error
        self.note_failure(contender.title, error)

    def _compare(self, contestant: Contestant, samples: SampleSet) -> float:
        self.tell(f"{self.model}: comparing {contestant.job.contender} with float32")
        return contestant.ask(f"compare {samples.name}")["snr_db"]

    def _unseen(self) -> float:
        """Return the compiled model's signal-to-noise ratio on additional inputs, in dB."""
        self.tell(f"{self.model}: comparing ours on {self.spec.unseen} unseen inputs")
        job = self.job(threads=self.spec.threads, unseen=self.spec.unseen)
        printed = run_to_end("infer.unseen", job.as_text(), self.cores)
        return json.loads(printed.splitlines()[-1])["snr_db"]

    def _asked(self, peers: list[Contestant]) -> float:
        """Return the signal-to-noise ratio in dB that the compilation by Slipstream has to reach.

        Competitors that fail are removed from the list.

        It is the ratio of the fastest competitor plus `MARGIN_DB`, but at most `FAITHFUL_DB`. It is
        `FAITHFUL_DB` without competitors.
        """
        turns = self._turns(peers, SURVEY_ROUNDS)
        left = [peer for peer in peers if peer.job.contender in turns]
        peers[:] = left
        for peer in sorted(left, key=lambda peer: median(chain(*turns[peer.job.contender]))):
            try:
                return min(self._compare(peer, JUDGING) + MARGIN_DB, FAITHFUL_DB)
            except ProcessError as error:
                self.drop(peer, error)
                peers.remove(peer)
        return FAITHFUL_DB

    # ---- rounds --------------------------------------------------------------------------------

    def _turns(self, contestants: Sequence[Contestant], count: int) -> dict[str, Turns]:
        """Run turns; return, for each contender, the seconds of every call, grouped by turn."""
        answers = self.rounds(self.model, contestants, count, self.spec.seconds)
        return {
            name: tuple(tuple(turn["seconds"]) for turn in turns) for name, turns in answers.items()
        }

    def _timings(self, contestants: Sequence[Contestant]) -> tuple[InferTiming, ...]:
        ratios: dict[str, float] = {}
        for contestant in contestants:
            try:
                ratios[contestant.job.contender] = self._compare(contestant, HELD_OUT)
            except ProcessError as error:
                self.drop(contestant, error)
        able = [contestant for contestant in contestants if contestant.job.contender in ratios]
        turns = self._turns(able, self.spec.rounds)
        timings: list[InferTiming] = []
        for contestant in able:
            name = contestant.job.contender
            if name in turns:
                timings.append(self._timing(contestant, ratios[name], turns[name]))
        return tuple(timings)

    def _timing(self, contestant: Contestant, snr_db: float, turns: Turns) -> InferTiming:
        name = contestant.job.contender
        file = CONTENDERS[name].file
        is_made = bool(file) and file != EXPORTED
        made_in = self.folder / (file + SECONDS)
        return InferTiming(
            contender=name,
            turns=turns,
            snr_db=snr_db,
            prepare_seconds=float(made_in.read_text()) if is_made else 0.0,
            load_seconds=contestant.ready["load_seconds"],
            peak_bytes=contestant.ask("memory")["peak_bytes"],
            detail=contestant.ready["detail"],
        )

    def _note_disturbance(self, timings: Sequence[InferTiming]) -> None:
        names = [timing.contender for timing in timings if timing.was_disturbed]
        if names:
            self.notes.append(
                f"{self.model}: another program ran meanwhile: the upper quartile of"
                f" {', '.join(names)} is more than {DISTURBED:g} times the lower quartile; compare"
                " the best turns"
            )
