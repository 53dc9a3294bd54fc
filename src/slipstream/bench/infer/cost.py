"""Mean time and cost of the classification of a JPEG image, at a required accuracy.

The method is that of DAWNBench, which runs one image at a time over a complete test set (Coleman et
al., "DAWNBench: An End-to-End Deep Learning Benchmark and Competition", 2017).
"""

# NumPy's type stubs leave result types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from slipstream import infer
from slipstream.bench.environment import environment, environment_line
from slipstream.bench.tables import make_table, yes_or_no
from slipstream.errors import UsageError
from slipstream.infer.outputs.outputs import LABELS
from slipstream.infer.run.session import Model, Outputs

TOP = 5
WARM_UPS = 20  # calls of each model before the measurement
SUFFIXES = (".jpg", ".jpeg")
TELL_EVERY = 100  # number of images between two lines of progress


@dataclass(frozen=True, kw_only=True, slots=True)
class CostSpec:
    """Settings and requirements of a measurement of cost.

    Args:
        packages: Paths of files that `slipstream compile --pixels` wrote; at least one.
        folder: Folder with a subfolder of JPEG files for each label; the subfolder's name is the
            label, written as a number.
        top1: Required share of images whose label is the model's most likely class, 0 to 1 (default
            0).
        top5: Required share of images whose label is among the model's five most likely classes, 0
            to 1 (default 0).
        price: Price of an hour of this machine, in any currency (default 0).
        threads: Number of threads of each model (default None: the number for which the model was
            compiled).
    """

    packages: tuple[Path, ...]
    folder: Path
    top1: float = 0.0
    top5: float = 0.0
    price: float = 0.0
    threads: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.packages:
            raise UsageError("no model is given; with --images, models are compiled packages")
        if not (0 <= self.top1 <= 1 and 0 <= self.top5 <= 1 and self.price >= 0):
            raise UsageError(
                f"top-1 is {self.top1:.0%}, top-5 {self.top5:.0%}, the price {self.price:g};"
                " allowed: 0 to 100 % and a price from 0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Measured time and accuracy of one model.

    Args:
        package: Path of the model's file.
        recipe: Engine and precision of the model, as readable text.
        seconds: Seconds of every image, in the order of the files.
        top1: Share of images whose label is the model's most likely class, 0 to 1.
        top5: Share of images whose label is among the model's five most likely classes, 0 to 1.
    """

    package: Path
    recipe: str
    seconds: tuple[float, ...]
    top1: float
    top5: float

    @property
    def mean(self) -> float:
        """Mean seconds per image."""
        return statistics.fmean(self.seconds)

    @property
    def median(self) -> float:
        """Median seconds per image."""
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        """99th percentile of the seconds per image."""
        return float(np.quantile(self.seconds, 0.99))

    def cost(self, spec: CostSpec, images: int = 1) -> float:
        """Return the cost of labelling some number of images, in the currency of the price."""
        return self.mean * images * spec.price / 3600

    def is_accurate(self, spec: CostSpec) -> bool:
        """Return whether the model reaches the required accuracy."""
        return self.top1 >= spec.top1 and self.top5 >= spec.top5


def measure_cost(spec: CostSpec, tell: Callable[[str], None] = lambda text: None) -> list[Cost]:
    """Label every image with every model, which takes minutes for a large set.

    The models take turns. The measured time begins when the bytes of an image file are in memory,
    and ends when the model has predicted the classes.

    Args:
        spec: Settings of the measurement.
        tell: Function that receives lines of progress (default: lines are dropped).

    Raises:
        UsageError: the folder has no JPEG files, or a model does not accept such files.
    """
    files = _files(spec.folder)
    with ExitStack() as stack:
        models = [stack.enter_context(_load(package, spec.threads)) for package in spec.packages]
        first = files[0][0].read_bytes()
        for model in models * WARM_UPS:
            model(first)
        seconds: list[list[float]] = [[] for _ in models]
        ranks: list[list[int]] = [[] for _ in models]
        for number, (path, label) in enumerate(files):
            if number % TELL_EVERY == 0:
                tell(f"image {number + 1} of {len(files)}")
            data = path.read_bytes()
            order = range(len(models)) if number % 2 == 0 else reversed(range(len(models)))
            for index in order:
                begin = time.perf_counter()
                outputs = models[index](data)
                seconds[index].append(time.perf_counter() - begin)
                ranks[index].append(rank_of(label, outputs))
        return [
            Cost(
                package=package,
                recipe=f"{model.manifest.recipe.engine} {model.manifest.recipe.precision}",
                seconds=tuple(taken),
                top1=sum(rank < 1 for rank in model_ranks) / len(files),
                top5=sum(rank < TOP for rank in model_ranks) / len(files),
            )
            for package, model, taken, model_ranks in zip(
                spec.packages, models, seconds, ranks, strict=True
            )
        ]


def rank_of(label: int, outputs: Outputs) -> int:
    """Return the position of the right label among a model's predicted classes, counted from 0.

    Args:
        label: Right label.
        outputs: Scores of all classes [1, classes], or `labels` [1, k] in descending order of their
            scores. If the right label is not among the k classes, its position is k.
    """
    if isinstance(outputs, dict) and LABELS in outputs:
        order = outputs[LABELS].ravel()
    else:
        scores = next(iter(outputs.values())) if isinstance(outputs, dict) else outputs
        order = np.argsort(-scores.ravel(), kind="stable")
    ranks = np.flatnonzero(order == label)
    return int(ranks[0]) if len(ranks) else len(order)


def cost_table(spec: CostSpec, costs: Sequence[Cost]) -> Table:
    """Return a table with a row for each model."""
    images = len(costs[0].seconds)
    table = make_table(
        f"{images:,} images, one at a time, from JPEG to answer",
        words=("model", "engine"),
        numbers=("ms", "median", "p99", "cost", "top-1", "top-5", "accurate"),
        caption=(
            "ms: mean time of an image; 1 % of the images took longer than p99. cost: price of a"
            f" million images at {spec.price:g} an hour. required: top-1 {spec.top1:.1%}, top-5"
            f" {spec.top5:.1%}.\n{environment_line()}"
        ),
    )
    for cost in costs:
        table.add_row(
            cost.package.name,
            cost.recipe,
            f"{cost.mean * 1e3:.3g}",
            f"{cost.median * 1e3:.3g}",
            f"{cost.p99 * 1e3:.3g}",
            f"{cost.cost(spec, 1_000_000):.3g}" if spec.price else "",
            f"{cost.top1:.2%}",
            f"{cost.top5:.2%}",
            yes_or_no(cost.is_accurate(spec)),
        )
    return table


def cost_as_json(spec: CostSpec, costs: Sequence[Cost]) -> dict[str, Any]:
    """Return the settings and all measured values as a JSON-compatible dictionary."""
    return {
        "spec": {
            **asdict(spec),
            "packages": [str(path) for path in spec.packages],
            "folder": str(spec.folder),
        },
        **environment(),
        "models": [
            {
                **asdict(cost),
                "package": str(cost.package),
                "mean_seconds": cost.mean,
                "median_seconds": cost.median,
                "p99_seconds": cost.p99,
                "cost_of_an_image": cost.cost(spec),
                "is_accurate": cost.is_accurate(spec),
            }
            for cost in costs
        ],
    }


def _files(folder: Path) -> list[tuple[Path, int]]:
    """Return every JPEG file with its label, sorted by the name of the file."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    labels = [path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()]
    files = [
        (path, int(label.name))
        for label in labels
        for path in label.iterdir()
        if path.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise UsageError(
            f"{folder} has no JPEG files in subfolders named by their labels (0, 1, 2 ...);"
            " python -m slipstream.bench.infer.fashion_mnist FOLDER makes an example"
        )
    return sorted(files, key=lambda item: (item[0].name, item[1]))


def _load(package: Path, threads: int | None) -> Model:
    model = infer.load(package, threads)
    if model.manifest.images is None:
        model.close()
        raise UsageError(f"{package} takes no JPEG files; compile the model with --pixels")
    return model
