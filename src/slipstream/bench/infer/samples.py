"""Inputs of a model and the expected outputs, in files that are read without PyTorch."""

# PyTorch's type stubs leave some types unspecified.
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
    """A set of random inputs of a model, named after the purpose of the set.

    Args:
        name: Name of the set, with which the names of its files begin.
        first: Seed of the first input; the next inputs have the next seeds.
        count: Number of inputs.
    """

    name: str
    first: int
    count: int

    def seeds(self) -> range:
        """Return the seeds of the inputs."""
        return range(self.first, self.first + self.count)

    def files(self, folder: Path) -> tuple[Path, Path]:
        """Return the paths of the files with the inputs and with the expected outputs."""
        return folder / f"{self.name}-inputs.npz", folder / f"{self.name}-outputs.npz"


CALIBRATION = SampleSet("calibration", 100, 8)  # for the calibration of all engines
JUDGING = SampleSet("judging", 108, 248)  # for the compilation by Slipstream, in addition
HELD_OUT = SampleSet("held-out", 1000, 32)  # for the final comparison of all contenders
FIRST_UNSEEN = 10_000  # seed of the first input that `unseen` compares


def write_set(folder: Path, chosen: SampleSet, model: ZooModel, network: torch.nn.Module) -> None:
    """Write the inputs of a set, and the outputs of a float32 network for these inputs."""
    import torch

    inputs: list[Mapping[str, NDArray[Any]]] = []
    outputs: list[Mapping[str, NDArray[Any]]] = []
    for seed in chosen.seeds():
        inputs.append(model.inputs(seed))
        with torch.inference_mode():
            result = network(*(torch.from_numpy(array) for array in inputs[-1].values()))
        tensors = result if isinstance(result, tuple) else (result,)
        arrays = (tensor.numpy() for tensor in tensors)
        outputs.append(dict(zip(model.outputs, arrays, strict=True)))
    for path, samples in zip(chosen.files(folder), (inputs, outputs), strict=True):
        write_samples(path, samples)


def write_samples(path: Path, samples: Sequence[Mapping[str, NDArray[Any]]]) -> None:
    """Write samples to a file that `read_samples` reads."""
    arrays = {
        f"{number}/{name}": array
        for number, sample in enumerate(samples)
        for name, array in sample.items()
    }
    np.savez(path, allow_pickle=False, **arrays)


def read_samples(path: Path) -> list[Sample]:
    """Return the samples of a file in order; each sample is a dictionary of arrays by name."""
    samples: dict[int, Sample] = {}
    with np.load(path) as file:
        for key in file.files:
            number, _, name = key.partition("/")
            samples.setdefault(int(number), {})[name] = file[key]
    return [samples[number] for number in sorted(samples)]


def signal_to_noise(outputs: Sequence[Sample], expected: Sequence[Sample]) -> float:
    """Return the signal-to-noise ratio in dB, the lowest over all outputs of the model."""
    comparison = Comparison()
    for sample, reference in zip(outputs, expected, strict=True):
        comparison.add(sample, reference)
    return comparison.snr_db
