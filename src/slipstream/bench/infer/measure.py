"""Latency of models by every engine and precision, peers' and ours, in one run by turns.

    report = measure(InferSpec(models=("resnet50",)))

Each contender has a process of its own, all on the same cores from their start. Ours is compiled
with at least the signal to noise of the fastest peer. Nothing else should run on the machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

from slipstream.bench.infer.contenders import (
    EXPORTED,
    PACKAGE_BEST,
    PACKAGE_FP32,
    EngineContender,
    chosen,
    obstacle,
)
from slipstream.bench.infer.job import DISTURBED, InferJob, InferTiming
from slipstream.bench.infer.models import find_model, model_folder
from slipstream.bench.infer.prepare import SECONDS
from slipstream.bench.infer.processes import Contestant, ProcessError, cores_of, run_to_end
from slipstream.bench.infer.samples import HELD_OUT, JUDGING, SampleSet
from slipstream.bench.zoo import ZOO
from slipstream.errors import UsageError
from slipstream.infer.graph import onnx_file
from slipstream.infer.graph.analysis import analyse

SURVEY_ROUNDS = 6  # in which the fastest peer is found, before ours is compiled
FAITHFUL_DB = 60.0  # what of float32 is asked of ours: above that, only rounding differs
MARGIN_DB = 1.0  # asked beyond a peer's, which is another one on the inputs that count

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class InferSpec:
    """Settings of a measurement.

    Args:
        models: names of the zoo's, or package.module:attribute of a `ZooModel`; at least one.
        peers: Names of `contenders.PEERS`; None for the peers that take part by default.
        threads: Threads and cores of every contender, at least 1.
        rounds: Number of rounds, at least 1; every contender has one turn in each.
        seconds: Seconds of a turn, which has at least one counted call.
        search_seconds: Time limit of each of our two compilations of a model.
        unseen: number of inputs, in no set of samples, on which ours has to keep what was asked of
            it; 0 for none.
        cache: folder for the peers' files, so that a second run makes none; None for a temporary
            one.
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
        """Refuse values that are not allowed."""
        for name in self.models:
            find_model(name)
        chosen(self.peers)
        cores_of(self.threads)
        if self.rounds < 1 or self.seconds <= 0 or self.search_seconds <= 0 or self.unseen < 0:
            raise UsageError(
                f"rounds is {self.rounds}, seconds {self.seconds}, search {self.search_seconds},"
                f" unseen {self.unseen}; allowed: rounds from 1, seconds and search more than 0,"
                " unseen from 0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelResult:
    """Results of one model.

    Args:
        model: its name.
        flops: operations of its products, as exported.
        bytes_moved: Bytes that the nodes of the exported model read and write.
        asked_db: signal to noise that ours was compiled to keep to.
        unseen_db: its signal to noise on the unseen inputs; None where there are none.
        timed: a row for each contender.
    """

    model: str
    flops: int
    bytes_moved: int
    asked_db: float
    unseen_db: float | None = None
    timed: tuple[InferTiming, ...]

    @property
    def keeps_promise(self) -> bool:
        """Whether ours has what was asked of it on the unseen inputs too, where there are any."""
        return self.unseen_db is None or self.unseen_db >= self.asked_db

    def of(self, contender: str) -> InferTiming | None:
        """Return the result of one contender; None if it did not take part."""
        return next((each for each in self.timed if each.contender == contender), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class InferReport:
    """Results of a run.

    Args:
        spec: Settings of the measurement.
        peaks: most operations per second of these cores, by precision.
        results: Results by model.
        notes: who was left out and why, a sentence each.
    """

    spec: InferSpec
    peaks: dict[str, float]
    results: tuple[ModelResult, ...]
    notes: tuple[str, ...]


def measure(spec: InferSpec, tell: Tell = lambda text: None) -> InferReport:
    """Run the measurement, and block for some minutes for each model.

    Args:
        spec: Settings of the measurement.
        tell: is told what is done next.

    Raises:
        SlipstreamError: a model cannot be exported, or ours cannot be compiled.
    """
    cores = cores_of(spec.threads)
    tell("the cores' peak is measured")
    peaks = json.loads(run_to_end("infer.peak", str(spec.threads), cores).splitlines()[-1])
    notes: dict[str, None] = {}
    results: list[ModelResult] = []
    for name in spec.models:
        with model_folder(spec.cache, name) as folder, ExitStack() as stack:
            trial = _ModelTrial(spec, name, folder, cores, tell, stack)
            results.append(trial.result())
            notes.update(dict.fromkeys(trial.notes))
    return InferReport(spec=spec, peaks=peaks, results=tuple(results), notes=tuple(notes))


@dataclass
class _ModelTrial:
    """One model's measurement."""

    spec: InferSpec
    model: str
    folder: Path
    cores: frozenset[int]
    tell: Tell
    stack: ExitStack
    notes: list[str] = field(default_factory=list[str])
    turns: dict[str, list[tuple[float, ...]]] = field(
        default_factory=dict[str, list[tuple[float, ...]]]
    )

    def result(self) -> ModelResult:
        """Measure peers first, because ours must be as accurate as the fastest; then all."""
        self._make(EXPORTED)
        contenders = [each for each in chosen(self.spec.peers) if self._takes_part(each)]
        peers = self._start([each for each in contenders if not each.is_ours])
        asked = self._asked(peers)
        self._make(PACKAGE_FP32)
        self._make(PACKAGE_BEST, asked)
        ours = self._start([each for each in contenders if each.is_ours])
        accuracy = {each.job.contender: self._compare(each, HELD_OUT) for each in (*peers, *ours)}
        self.turns.clear()
        self._rounds([*peers, *ours], self.spec.rounds)
        timed = tuple(self._timed(each, accuracy) for each in (*peers, *ours))
        self._note_disturbance(timed)
        unseen = self._unseen() if self.spec.unseen else None
        analysis = analyse(onnx_file.read(self.folder / EXPORTED))
        return ModelResult(
            model=self.model,
            flops=analysis.flops,
            bytes_moved=analysis.bytes_moved,
            asked_db=asked,
            unseen_db=unseen,
            timed=timed,
        )

    # ---- before --------------------------------------------------------------------------------

    def _takes_part(self, contender: EngineContender) -> bool:
        """Return whether a contender can take part, and make its file."""
        reason = obstacle(contender, self.model)
        if not reason and contender.file and not contender.is_ours:
            try:
                self._make(contender.file)
            except ProcessError as error:
                reason = str(error)
        if reason and not contender.models:
            self.notes.append(f"{self.model}: {contender.title} is left out: {reason}")
        return not reason

    def _make(self, file: str, snr_db: float = 0.0) -> None:
        """Make a file of the model, unless it is in the cache; ours are made anew each time."""
        is_ours = file in (PACKAGE_FP32, PACKAGE_BEST)
        if not is_ours and (self.folder / (file + SECONDS)).exists():
            return
        self.tell(f"{self.model}: {file} is made")
        job = InferJob(
            model=self.model,
            folder=str(self.folder),
            file=file,
            threads=self.spec.threads,
            seconds=self.spec.search_seconds,
            snr_db=snr_db,
        )
        run_to_end("infer.prepare", job.as_text(), self.cores)

    def _start(self, contenders: Sequence[EngineContender]) -> list[Contestant]:
        started: list[Contestant] = []
        for contender in contenders:
            self.tell(f"{self.model}: {contender.title} starts")
            job = InferJob(
                model=self.model,
                folder=str(self.folder),
                contender=contender.name,
                threads=self.spec.threads,
            )
            try:
                started.append(self.stack.enter_context(Contestant(job, self.cores)))
            except ProcessError as error:
                if contender.is_ours:
                    raise
                self.notes.append(f"{self.model}: {contender.title} is left out: {error}")
        return started

    def _compare(self, contestant: Contestant, samples: SampleSet) -> float:
        self.tell(f"{self.model}: {contestant.job.contender} is compared")
        return contestant.ask(f"compare {samples.name}")["snr_db"]

    def _unseen(self) -> float:
        """Return the signal-to-noise ratio of ours on unseen inputs, from its own process."""
        self.tell(f"{self.model}: ours meets {self.spec.unseen} unseen inputs")
        job = InferJob(
            model=self.model,
            folder=str(self.folder),
            threads=self.spec.threads,
            unseen=self.spec.unseen,
        )
        printed = run_to_end("infer.unseen", job.as_text(), self.cores)
        return json.loads(printed.splitlines()[-1])["snr_db"]

    def _asked(self, peers: Sequence[Contestant]) -> float:
        """Return the signal-to-noise ratio of the fastest peer, which ours must reach."""
        self._rounds(peers, SURVEY_ROUNDS)
        if not peers:
            return FAITHFUL_DB
        fastest = min(peers, key=lambda each: median(chain(*self.turns[each.job.contender])))
        return min(self._compare(fastest, JUDGING) + MARGIN_DB, FAITHFUL_DB)

    # ---- rounds --------------------------------------------------------------------------------

    def _rounds(self, contestants: Sequence[Contestant], rounds: int) -> None:
        """Give every contender a turn in each round; every second round reverses the order."""
        for number in range(rounds):
            self.tell(f"{self.model}: round {number + 1} of {rounds}")
            for each in contestants if number % 2 == 0 else contestants[::-1]:
                answer = each.ask(f"turn {self.spec.seconds}")
                turns = self.turns.setdefault(each.job.contender, [])
                turns.append(tuple(answer["seconds"]))

    def _timed(self, contestant: Contestant, accuracy: dict[str, float]) -> InferTiming:
        name = contestant.job.contender
        file = next(each.file for each in chosen(self.spec.peers) if each.name == name)
        made = self.folder / (file + SECONDS)
        is_made = bool(file) and file != EXPORTED
        return InferTiming(
            contender=name,
            turns=tuple(self.turns[name]),
            snr_db=accuracy[name],
            prepare_seconds=float(made.read_text()) if is_made else 0.0,
            load_seconds=contestant.ready["load_seconds"],
            peak_bytes=contestant.ask("memory")["peak_bytes"],
            detail=contestant.ready["detail"],
        )

    def _note_disturbance(self, timed: Sequence[InferTiming]) -> None:
        names = [each.contender for each in timed if each.was_disturbed]
        if names:
            self.notes.append(
                f"{self.model}: something else ran meanwhile: upper quartiles of {', '.join(names)}"
                f" are more than {DISTURBED:g} times the lower; compare best turns"
            )
