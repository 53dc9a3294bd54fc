"""Held-out inputs of a model and the right outputs, in files that need no PyTorch to read."""

# PyTorch's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slipstream.infer.accuracy import Comparison

if TYPE_CHECKING:
    import torch

    from slipstream.bench.zoo import ZooModel

INPUTS, OUTPUTS = "inputs.npz", "outputs.npz"
NUM_HELD_OUT = 8

Sample: TypeAlias = "dict[str, NDArray[Any]]"


def write_held_out(folder: Path, model: ZooModel, network: torch.nn.Module) -> None:
    """Write held-out inputs, and what a network gives for them in float32."""
    import torch

    inputs: list[Mapping[str, NDArray[Any]]] = []
    outputs: list[Mapping[str, NDArray[Any]]] = []
    for seed in range(NUM_HELD_OUT):
        inputs.append(model.inputs(seed))
        with torch.inference_mode():
            found = network(*(torch.from_numpy(array) for array in inputs[-1].values()))
        several = found if isinstance(found, tuple) else (found,)
        arrays = (tensor.numpy() for tensor in several)
        outputs.append(dict(zip(model.outputs, arrays, strict=True)))
    write_samples(folder / INPUTS, inputs)
    write_samples(folder / OUTPUTS, outputs)


def write_samples(path: Path, samples: Sequence[Mapping[str, NDArray[Any]]]) -> None:
    """Write what `read_samples` reads."""
    arrays = {
        f"{n}/{name}": each for n, sample in enumerate(samples) for name, each in sample.items()
    }
    np.savez(path, allow_pickle=False, **arrays)


def read_samples(path: Path) -> list[Sample]:
    """Returns samples in their order, each by name."""
    samples: dict[int, Sample] = {}
    with np.load(path) as file:
        for key in file.files:
            number, _, name = key.partition("/")
            samples.setdefault(int(number), {})[name] = file[key]
    return [samples[number] for number in sorted(samples)]


def signal_to_noise(found: Sequence[Sample], right: Sequence[Sample]) -> float:
    """Returns the signal to noise of outputs in dB: of the output where it is least."""
    comparison = Comparison()
    for outputs, reference in zip(found, right, strict=True):
        comparison.add(outputs, reference)
    return comparison.snr_db
