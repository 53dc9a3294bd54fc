"""The description of a pretrained model: its files, its inputs, and the judge of its answers."""

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
    """The task of a model, on real inputs.

    Args:
        samples: Samples for the compilation: inputs by name, or such inputs with the right class.
        judge: Function that runs a model on other inputs, and returns the share of right answers, 0
            to 1. One thread calls the run, with inputs of the model's shapes.
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
    """A model whose weights a Python package contains.

    Args:
        name: Name on the command line.
        title: Title for people.
        package: Package to install with pip.
        licence: Licence of the package.
        measure: Name of the accuracy measure.
        model: Function that returns its ONNX file or its network; it reads files.
        task: Function that returns its task, or a short one for True; it reads files.
        shapes: Shapes of the inputs that the model leaves open.
        snr_db: Lowest signal-to-noise ratio in dB of a compiled model that has no classes.
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
