"""From JPEG files to labels: latency on one core and streams on two, beside peers' pipelines.

    report = measure(PicturesSpec(models=("resnet50",)))

Each contender has a process of its own, on the same cores from its start; they have their turns in
one run. Nothing else should run on the machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slipstream.bench.images.contenders import CONTENDERS, PACKAGE, PictureContender, Task
from slipstream.bench.images.files import write_photographs
from slipstream.bench.images.prepare import CALIBRATION, RIGHT
from slipstream.bench.images.process import PICTURES
from slipstream.bench.infer.contenders import CONTENDERS as ENGINES
from slipstream.bench.infer.contenders import EXPORTED, obstacle
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.models import model_folder
from slipstream.bench.infer.prepare import SECONDS
from slipstream.bench.infer.processes import Contestant, ProcessError, cores_of, run_to_end
from slipstream.errors import UsageError

Tell = Callable[[str], None]

# Of the best plain pipeline's time over ours, by model.
BARS: dict[tuple[str, Task], float] = {
    ("resnet50", "latency"): 1.15,
    ("mobilenetv3_large", "latency"): 1.4,
    ("resnet50", "stream"): 1.4,
    ("mobilenetv3_large", "stream"): 2.0,
}
MODELS = ("resnet50", "mobilenetv3_large")
CLASSIFIERS = (*MODELS, "resnet26d", "efficientnet_b0", "vit_small")
CORES: dict[Task, int] = {"latency": 1, "stream": 2}
NUM_CALIBRATION, NUM_PICTURES = 32, 64


@dataclass(frozen=True, kw_only=True, slots=True)
class PicturesSpec:
    """Settings of a measurement.

    Args:
        models: names of the zoo's classifiers; at least one.
        tasks: "latency" on one core, "stream" on two; default both.
        rounds: Number of rounds, at least 1; every contender has one turn in each.
        seconds: Seconds of a turn.
        search_seconds: Time limit of our compilation.
        snr_db: least signal to noise of ours, in dB.
        cache: folder for the peers' files, so that a second run makes none; None for a temporary
            one. `slipstream bench infer` may have the same.
    """

    models: tuple[str, ...] = MODELS
    tasks: tuple[Task, ...] = ("latency", "stream")
    rounds: int = 10
    seconds: float = 1.0
    search_seconds: float = 60.0
    snr_db: float = 20.0
    cache: Path | None = None

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        strange = [name for name in self.models if name not in CLASSIFIERS]
        if strange or not self.models:
            raise UsageError(f"the models are {self.models}; allowed: {', '.join(CLASSIFIERS)}")
        for task in self.tasks:
            if task not in CORES:
                raise UsageError(f"the task is {task!r}; allowed: {', '.join(CORES)}")
        if self.rounds < 1 or self.seconds <= 0 or self.search_seconds <= 0:
            raise UsageError(
                f"rounds is {self.rounds}, seconds {self.seconds}, search {self.search_seconds};"
                " allowed: 1 and more, and more than 0"
            )
        for task in self.tasks:
            cores_of(CORES[task])


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRow:
    """Result of one contender with one model.

    Args:
        model: its name.
        contender: its name in `contenders.CONTENDERS`.
        seconds: Seconds of single images; for streams, the mean per image of each turn.
        cpu_seconds: Processor seconds per image, the median of the turns, with spinning threads
            counted. On cores of its own, a stream cannot be faster than these seconds allow.
        agreement: share of labels that are those of the network in float32.
        load_seconds: Seconds from the start to the first label.
        detail: Engine that runs our model; empty for peers.
    """

    model: str
    contender: str
    seconds: tuple[float, ...]
    cpu_seconds: float
    agreement: float
    load_seconds: float
    detail: str

    @property
    def median(self) -> float:
        """Seconds of a picture."""
        return statistics.median(self.seconds)

    @property
    def how(self) -> PictureContender:
        """The contender."""
        return CONTENDERS[self.contender]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageBar:
    """Ours beside a peer.

    Args:
        model: its name.
        task: Task of both contenders.
        peer: the best one of its kind.
        ours: it.
        at_least: Smallest ratio that meets the target; None if nothing is promised.
    """

    model: str
    task: Task
    peer: ImageRow
    ours: ImageRow
    at_least: float | None

    @property
    def ratio(self) -> float:
        """The peer's time divided by ours; more is better."""
        return self.peer.median / self.ours.median


@dataclass(frozen=True, kw_only=True, slots=True)
class PicturesReport:
    """Results of a run.

    Args:
        spec: Settings of the measurement.
        rows: Rows by model and contender.
        notes: who was left out and why, a sentence each.
    """

    spec: PicturesSpec
    rows: tuple[ImageRow, ...]
    notes: tuple[str, ...]

    def bars(self) -> list[ImageBar]:
        """Return ours beside the best plain pipeline and, of streams, beside the best of all."""
        found: list[ImageBar] = []
        for model in self.spec.models:
            for task in self.spec.tasks:
                rows = [row for row in self.rows if (row.model, row.how.task) == (model, task)]
                plain = [row for row in rows if row.how.is_plain]
                others = [row for row in rows if not (row.how.is_ours or row.how.is_plain)]
                ours = next(row for row in rows if row.contender == f"{task}-ours")
                for peers, wanted in ((plain, BARS.get((model, task))), (others, None)):
                    if peers:
                        best = min(peers, key=lambda row: row.median)
                        found.append(
                            ImageBar(model=model, task=task, peer=best, ours=ours, at_least=wanted)
                        )
        return found


def measure(spec: PicturesSpec, tell: Tell = lambda text: None) -> PicturesReport:
    """Run the measurement, and block for some minutes for each model.

    Args:
        spec: Settings of the measurement.
        tell: is told what is done next.

    Raises:
        SlipstreamError: a model cannot be exported, or ours cannot be compiled.
    """
    rows: list[ImageRow] = []
    notes: list[str] = []
    for model in spec.models:
        with model_folder(spec.cache, model) as folder:
            trial = _PipelineTrial(spec, model, folder, tell)
            trial.prepare()
            for task in spec.tasks:
                rows.extend(trial.rows(task))
            notes.extend(trial.notes)
    return PicturesReport(spec=spec, rows=tuple(rows), notes=tuple(notes))


@dataclass
class _PipelineTrial:
    """One model's measurement."""

    spec: PicturesSpec
    model: str
    folder: Path
    tell: Tell
    notes: list[str] = field(default_factory=list[str])
    able: list[PictureContender] = field(default_factory=list[PictureContender])

    def prepare(self) -> None:
        """Make all files."""
        write_photographs(self.folder / PICTURES, NUM_PICTURES, 0)
        write_photographs(self.folder / CALIBRATION, NUM_CALIBRATION, 1000)
        self._make("infer.prepare", EXPORTED)
        self._make("images.prepare", RIGHT)
        self._make("images.prepare", PACKAGE)
        missing: set[str] = set()
        for contender in CONTENDERS.values():
            if contender.is_ours or (contender.engine not in missing and self._can(contender)):
                self.able.append(contender)
            else:
                missing.add(contender.engine)

    def _can(self, contender: PictureContender) -> bool:
        """Return whether a peer can take part, and make its file."""
        reason = obstacle(ENGINES[contender.engine], self.model)
        if not reason:
            try:
                self._make("infer.prepare", contender.file)
            except ProcessError as error:
                reason = str(error)
        if reason:
            self.notes.append(f"{self.model}: {contender.title} is left out: {reason}")
        return not reason

    def _make(self, module: str, file: str) -> None:
        """Make a file of the model, unless it is in the cache; ours is made anew each time."""
        target = self.folder / file
        if file != PACKAGE and (target.exists() if file == RIGHT else self._has(file)):
            return
        self.tell(f"{self.model}: {file} is made")
        job = InferJob(
            model=self.model,
            folder=str(self.folder),
            file=file,
            seconds=self.spec.search_seconds,
            snr_db=self.spec.snr_db,
        )
        run_to_end(module, job.as_text(), cores_of(1))

    def _has(self, file: str) -> bool:
        return (self.folder / (file + SECONDS)).exists()

    def rows(self, task: Task) -> list[ImageRow]:
        """Return the rows of all contenders; every second round takes them in reverse order."""
        cores = CORES[task]
        seconds: dict[str, list[float]] = {}
        cpu_seconds: dict[str, list[float]] = {}
        with ExitStack() as stack:
            contestants = [
                stack.enter_context(self._started(each, cores))
                for each in self.able
                if each.task == task
            ]
            labels = {each.job.contender: each.ask("labels")["labels"] for each in contestants}
            for number in range(self.spec.rounds):
                self.tell(f"{self.model}: {task}, round {number + 1} of {self.spec.rounds}")
                for each in contestants if number % 2 == 0 else contestants[::-1]:
                    answer = each.ask(f"turn {self.spec.seconds}")
                    seconds.setdefault(each.job.contender, []).extend(answer["seconds"])
                    cpu_seconds.setdefault(each.job.contender, []).append(answer["cpu_seconds"])
            return [self._row(each, labels, seconds, cpu_seconds) for each in contestants]

    def _started(self, contender: PictureContender, cores: int) -> Contestant:
        self.tell(f"{self.model}: {contender.title} starts")
        job = InferJob(
            model=self.model,
            folder=str(self.folder),
            contender=contender.name,
            threads=contender.engine_threads or cores,
        )
        return Contestant(job, cores_of(cores), "images.process")

    def _row(
        self,
        contestant: Contestant,
        labels: dict[str, Sequence[int]],
        seconds: dict[str, list[float]],
        cpu_seconds: dict[str, list[float]],
    ) -> ImageRow:
        name = contestant.job.contender
        right: NDArray[np.int64] = np.load(self.folder / RIGHT)
        return ImageRow(
            model=self.model,
            contender=name,
            seconds=tuple(seconds[name]),
            cpu_seconds=statistics.median(cpu_seconds[name]),
            agreement=float(np.mean(np.equal(right, labels[name]))),
            load_seconds=contestant.ready["load_seconds"],
            detail=contestant.ready["detail"],
        )
