"""Inputs of a model and the right outputs, in files that need no PyTorch to read."""

# PyTorch's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slipstream.infer.accuracy.accuracy import Comparison

if TYPE_CHECKING:
    import torch

    from slipstream.bench.zoo import ZooModel

Sample: TypeAlias = "dict[str, NDArray[Any]]"


@dataclass(frozen=True, slots=True)
class SampleSet:
    """Inputs of a model that have one purpose.

    Args:
        name: Name of the files.
        first: seed of the first.
        count: Number of samples.
    """

    name: str
    first: int
    count: int

    def seeds(self) -> range:
        """Return the seeds of the inputs."""
        return range(self.first, self.first + self.count)

    def files(self, folder: Path) -> tuple[Path, Path]:
        """Return the paths of its inputs and of the right outputs."""
        return folder / f"{self.name}-inputs.npz", folder / f"{self.name}-outputs.npz"


CALIBRATION = SampleSet("calibration", 100, 8)  # peers find the ranges of bytes on them
JUDGING = SampleSet("judging", 108, 248)  # and these: 256 in all are what ours is compiled with
HELD_OUT = SampleSet("held-out", 1000, 32)  # all are compared on them in the end
FIRST_UNSEEN = 10_000  # seed of the inputs on which ours has to keep what it promised


def write_set(folder: Path, each: SampleSet, model: ZooModel, network: torch.nn.Module) -> None:
    """Write the inputs of a set, and a network's float32 outputs for them."""
    import torch

    inputs: list[Mapping[str, NDArray[Any]]] = []
    outputs: list[Mapping[str, NDArray[Any]]] = []
    for seed in each.seeds():
        inputs.append(model.inputs(seed))
        with torch.inference_mode():
            found = network(*(torch.from_numpy(array) for array in inputs[-1].values()))
        several = found if isinstance(found, tuple) else (found,)
        arrays = (tensor.numpy() for tensor in several)
        outputs.append(dict(zip(model.outputs, arrays, strict=True)))
    for path, samples in zip(each.files(folder), (inputs, outputs), strict=True):
        write_samples(path, samples)


def write_samples(path: Path, samples: Sequence[Mapping[str, NDArray[Any]]]) -> None:
    """Write samples for `read_samples`."""
    arrays = {
        f"{n}/{name}": each for n, sample in enumerate(samples) for name, each in sample.items()
    }
    np.savez(path, allow_pickle=False, **arrays)


def read_samples(path: Path) -> list[Sample]:
    """Return samples in their order, each by name."""
    samples: dict[int, Sample] = {}
    with np.load(path) as file:
        for key in file.files:
            number, _, name = key.partition("/")
            samples.setdefault(int(number), {})[name] = file[key]
    return [samples[number] for number in sorted(samples)]


def signal_to_noise(found: Sequence[Sample], right: Sequence[Sample]) -> float:
    """Return the signal to noise of outputs in dB: of the output where it is least."""
    comparison = Comparison()
    for outputs, reference in zip(found, right, strict=True):
        comparison.add(outputs, reference)
    return comparison.snr_db
