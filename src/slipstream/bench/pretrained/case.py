"""Parts of the benchmark of a pretrained model, and its judgement."""

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
    """Task of a model, on real inputs.

    Args:
        samples: Samples for the compilation: inputs by name, or such inputs with the right class.
        judge: runs a model on other inputs, and returns the share of answers that are right, 0 to
            1. The run is called by one thread, with inputs of the model's shapes.
    """

    samples: list[Sample]
    judge: Callable[[Run], float]


@dataclass(frozen=True)
class Module:
    """A network of PyTorch with its weights, and an example of its inputs by name."""

    network: Any
    example: Inputs


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A model whose weights ship inside a package.

    Args:
        name: Name on the command line.
        title: Title for people.
        package: Package that `pip` installs.
        licence: Licence of the package.
        measure: Name of the accuracy measure.
        model: its ONNX file, or its network; reads files.
        task: the inputs and the judge; True for a short one. Reads files.
        shapes: Shapes of the inputs that the model leaves open.
        snr_db: least signal to noise of the compiled model, where there are no classes.
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
