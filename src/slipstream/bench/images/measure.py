"""Measurement of pipelines from JPEG files to labels: Slipstream's, and those of other engines.

    report = measure(ImagesSpec(models=("resnet50",)))

Latency is measured on one core, and the rate of a stream of images on two cores. Each contender has
its own process, and all processes run on the same cores. The contenders take turns, so that
disturbances affect all of them alike. Nothing else should run on the machine.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream.bench.images.contenders import CONTENDERS, PACKAGE, ImageContender, Task
from slipstream.bench.images.files import write_photographs
from slipstream.bench.images.prepare import CALIBRATION, LABELS
from slipstream.bench.images.process import IMAGES
from slipstream.bench.infer.contenders import CONTENDERS as ENGINES
from slipstream.bench.infer.contenders import EXPORTED, obstacle
from slipstream.bench.infer.models import model_folder
from slipstream.bench.infer.processes import Contestant, cores_of
from slipstream.bench.infer.trial import ModelTrial, Tell
from slipstream.errors import UsageError

# Performance targets: smallest ratio of the best plain pipeline's time to ours.
BARS: dict[tuple[str, Task], float] = {
    ("resnet50", "latency"): 1.15,
    ("mobilenetv3_large", "latency"): 1.4,
    ("resnet50", "stream"): 1.4,
    ("mobilenetv3_large", "stream"): 2.0,
}
MODELS = ("resnet50", "mobilenetv3_large")
CLASSIFIERS = (*MODELS, "resnet26d", "efficientnet_b0", "vit_small")
CORES: dict[Task, int] = {"latency": 1, "stream": 2}
NUM_CALIBRATION, NUM_IMAGES = 32, 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesSpec:
    """Settings of a measurement.

    Args:
        models: Names of classifiers of the zoo, at least one.
        tasks: Tasks to measure: "latency" on one core, "stream" on two cores (default both).
        rounds: Number of rounds, at least 1; every contender has one turn in each.
        seconds: Length of a turn in seconds.
        search_seconds: Time limit in seconds for the compilation of a model by Slipstream.
        snr_db: Smallest signal-to-noise ratio that the compiled model's outputs may have, in dB.
        cache: Folder with files that the next run uses again: all except the models compiled by
            Slipstream (default None: a temporary folder). `slipstream bench infer` may use the same
            folder.
    """

    models: tuple[str, ...] = MODELS
    tasks: tuple[Task, ...] = ("latency", "stream")
    rounds: int = 10
    seconds: float = 1.0
    search_seconds: float = 60.0
    snr_db: float = 20.0
    cache: Path | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        unknown = [name for name in self.models if name not in CLASSIFIERS]
        if unknown or not self.models:
            raise UsageError(f"the models are {self.models}; allowed: {', '.join(CLASSIFIERS)}")
        for task in self.tasks:
            if task not in CORES:
                raise UsageError(f"the task is {task!r}; allowed: {', '.join(CORES)}")
        if self.rounds < 1 or self.seconds <= 0 or self.search_seconds <= 0:
            raise UsageError(
                f"rounds is {self.rounds}, seconds {self.seconds}, search {self.search_seconds};"
                " allowed: rounds from 1, seconds and search above 0"
            )
        for task in self.tasks:
            cores_of(CORES[task])


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRow:
    """Result of one contender with one model.

    Args:
        model: Name of the model.
        contender: Name of the contender in `contenders.CONTENDERS`.
        seconds: Seconds of each image for "latency"; for "stream", the mean seconds per image in
            each turn.
        cpu_seconds: Processor seconds per image, the median of the turns. They include the time of
            threads that spin while they wait. On N cores, a stream takes at least `cpu_seconds` / N
            seconds per image.
        agreement: Share of images, 0 to 1, that get the same label as from the model in float32.
        load_seconds: Seconds from the start of loading until the first label.
        detail: Engine and precision of the model compiled by Slipstream; empty for other engines.
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
        """Median seconds per image."""
        return statistics.median(self.seconds)

    @property
    def pipeline(self) -> ImageContender:
        """Contender that has this result."""
        return CONTENDERS[self.contender]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageBar:
    """Comparison of Slipstream's pipeline with the pipeline of another engine.

    Args:
        model: Name of the model.
        task: Task of both contenders.
        peer: Result of the fastest competing pipeline, among the plain ones or among the others.
        ours: Result of Slipstream's pipeline.
        at_least: Smallest ratio that meets the performance target; None if there is no target.
    """

    model: str
    task: Task
    peer: ImageRow
    ours: ImageRow
    at_least: float | None

    @property
    def ratio(self) -> float:
        """Time of the competing pipeline divided by the time of Slipstream's; higher is better."""
        return self.peer.median / self.ours.median


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesReport:
    """Results of a run of the benchmark.

    Args:
        spec: Settings of the measurement.
        rows: Results of all contenders, by model and task.
        notes: Sentences that say which contenders were left out, and why.
    """

    spec: ImagesSpec
    rows: tuple[ImageRow, ...]
    notes: tuple[str, ...]

    def of(self, model: str, task: Task) -> list[ImageRow]:
        """Return the results of all contenders for one model and task."""
        return [row for row in self.rows if (row.model, row.pipeline.task) == (model, task)]

    def bars(self) -> list[ImageBar]:
        """Compare Slipstream with the fastest plain and the fastest other competing pipeline."""
        bars: list[ImageBar] = []
        for model in self.spec.models:
            for task in self.spec.tasks:
                rows = self.of(model, task)
                plain = [row for row in rows if row.pipeline.is_plain]
                others = [
                    row for row in rows if not (row.pipeline.is_ours or row.pipeline.is_plain)
                ]
                ours = next(row for row in rows if row.contender == f"{task}-ours")
                for peers, target in ((plain, BARS.get((model, task))), (others, None)):
                    if peers:
                        best = min(peers, key=lambda row: row.median)
                        bars.append(
                            ImageBar(model=model, task=task, peer=best, ours=ours, at_least=target)
                        )
        return bars


def measure(spec: ImagesSpec, tell: Tell = lambda text: None) -> ImagesReport:
    """Run the measurement, which takes some minutes for each model.

    Args:
        spec: Settings of the measurement.
        tell: Function that receives a line of progress about each step (default: lines are
            dropped).

    Raises:
        SlipstreamError: a model cannot be exported, or cannot be compiled by Slipstream.
    """
    rows: list[ImageRow] = []
    notes: list[str] = []
    for model in spec.models:
        with model_folder(spec.cache, model) as folder:
            trial = _PipelineTrial(spec=spec, model=model, folder=folder, tell=tell)
            trial.prepare()
            for task in spec.tasks:
                rows.extend(trial.rows(task))
            notes.extend(trial.notes)
    return ImagesReport(spec=spec, rows=tuple(rows), notes=tuple(notes))


@dataclass(kw_only=True)
class _PipelineTrial(ModelTrial):
    """Measurement of one model in all pipelines.

    Args:
        spec: Settings of the measurement.
        contenders: Contenders that can run on this machine.
    """

    spec: ImagesSpec
    contenders: list[ImageContender] = field(default_factory=list[ImageContender])

    def prepare(self) -> None:
        """Make the image and model files, and find the contenders that can run on this machine."""
        write_photographs(self.folder / IMAGES, NUM_IMAGES, 0)
        write_photographs(self.folder / CALIBRATION, NUM_CALIBRATION, 1000)
        self._make("infer.prepare", EXPORTED)
        self._make("images.prepare", LABELS)
        self._make("images.prepare", PACKAGE)
        missing: set[str] = set()
        for contender in CONTENDERS.values():
            if contender.is_ours or (contender.engine not in missing and self._can_run(contender)):
                self.contenders.append(contender)
            else:
                missing.add(contender.engine)

    def _can_run(self, contender: ImageContender) -> bool:
        reason = obstacle(ENGINES[contender.engine], self.model)
        make = partial(self._make, "infer.prepare", contender.file)
        return self.takes_part(contender.title, reason, make)

    def _make(self, module: str, file: str) -> None:
        """Make a file unless it exists; Slipstream compiles its model anew in every run."""
        if file != PACKAGE and self.has(file):
            return
        job = self.job(file=file, seconds=self.spec.search_seconds, snr_db=self.spec.snr_db)
        self.make(module, job, cores_of(1))

    def rows(self, task: Task) -> list[ImageRow]:
        """Measure all contenders of a task, and return their results."""
        cores = CORES[task]
        with ExitStack() as stack:
            contestants = [
                stack.enter_context(self._start(contender, cores))
                for contender in self.contenders
                if contender.task == task
            ]
            labels = [contestant.ask("labels")["labels"] for contestant in contestants]
            title = f"{self.model}: {task}"
            turns = self.rounds(title, contestants, self.spec.rounds, self.spec.seconds)
        return [
            self._row(contestant, row_labels, turns[contestant.job.contender])
            for contestant, row_labels in zip(contestants, labels, strict=True)
        ]

    def _start(self, contender: ImageContender, cores: int) -> Contestant:
        self.tell(f"{self.model}: starting {contender.title}")
        job = self.job(contender=contender.name, threads=contender.engine_threads or cores)
        return Contestant(job, cores_of(cores), "images.process")

    def _row(
        self, contestant: Contestant, labels: list[int], turns: list[dict[str, Any]]
    ) -> ImageRow:
        expected: NDArray[np.int64] = np.load(self.folder / LABELS)
        return ImageRow(
            model=self.model,
            contender=contestant.job.contender,
            seconds=tuple(seconds for turn in turns for seconds in turn["seconds"]),
            cpu_seconds=statistics.median(turn["cpu_seconds"] for turn in turns),
            agreement=float(np.mean(np.equal(expected, labels))),
            load_seconds=contestant.ready["load_seconds"],
            detail=contestant.ready["detail"],
        )
