"""The codecs of CUDA tensors: whether their bits are the reference's.

Needs PyTorch, for one case Triton and a C compiler, and no built package of ours.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import torch

from . import codec_reference as reference
from .bench import Row
from .codec_values import KINDS, Floats, values_of
from .isolated import ROOT

COUNTS = (1, 2, 3, 127, 128, 129, 2047, 2048, 2049, 4097, 30_011)
LONG = 1_000_003
LONG_KINDS = ("bits", "special")
MARGIN = 64  # bytes around results, which must stay as they are
CANARY = 0xA5
SHOWN = 5
PACKAGE = "slipstream.torch.cuda"

# The sources beside this one: no package needs to be built.
sys.path.insert(0, str(ROOT / "src"))


class CodecError(RuntimeError):
    """A kernel's bits are not the reference's, or its package is missing."""


def load_kernels(name: str) -> ModuleType:
    """Return the kernels that Triton or PyTorch ("torch") has.

    Raises:
        CodecError: Their package is not installed.
    """
    try:
        return importlib.import_module(f"{PACKAGE}.{name}_codecs")
    except ModuleNotFoundError as error:
        raise CodecError(f"the {name} kernels need {error.name}, which is not installed") from error


def layouts() -> Mapping[str, Any]:
    """Return the layouts of all codecs."""
    return importlib.import_module(f"{PACKAGE}.layouts").LAYOUTS


@dataclass(frozen=True)
class Place:
    """Where kernels read and write in a check.

    Args:
        device: Device of the values.
        pinned: Whether the bytes are in pinned host memory.
        offset: Elements of 4 bytes after an aligned address.
    """

    device: str
    pinned: bool
    offset: int

    def floats(self, values: Floats) -> Any:
        """Return a tensor of values."""
        tensor = torch.empty(self.offset + len(values), device=self.device)[self.offset :]
        return tensor.copy_(torch.from_numpy(values.copy()))

    def bytes(self, count: int) -> tuple[Any, Any]:
        """Return a buffer, and the part of it that holds `count` bytes between margins."""
        first = MARGIN + 4 * self.offset
        device = "cpu" if self.pinned else self.device
        size = first + count + MARGIN
        whole = torch.empty(size, dtype=torch.uint8, device=device, pin_memory=self.pinned)
        whole.fill_(CANARY)
        return whole, whole[first : first + count]


def places(device: str) -> list[Place]:
    """Return the places of a device: aligned and not, its own memory and the host's."""
    pinned = (False,) if device == "cpu" else (False, True)
    return [Place(device, where, offset) for where, offset in product(pinned, (0, 1))]


def synchronize(device: str) -> None:
    """Wait for a device."""
    if device != "cpu":
        torch.cuda.synchronize()


def same(tensor: Any, expected: np.ndarray[Any, Any]) -> bool:
    """Return whether a tensor has exactly these bits."""
    return tensor.cpu().numpy().tobytes() == expected.tobytes()


@dataclass(frozen=True)
class Expected:
    """What must become of values.

    Args:
        encoded: Values in the codec's layout.
        decoded: Values that arrive.
        encoded_sum: Sums of values and residual in the codec's layout.
        residual: Residual afterwards.
    """

    encoded: reference.Bytes
    decoded: Floats
    encoded_sum: reference.Bytes
    residual: Floats


@functools.cache
def expected(codec: str, kind: str, count: int) -> Expected:
    """Return what must become of values; all places share it."""
    values, before = values_of(kind, count), values_of(kind, count, seed=1)
    encoded = reference.encode(codec, values)
    encoded_sum, residual = reference.encode_with_residual(codec, values, before)
    return Expected(encoded, reference.decode(codec, encoded, count), encoded_sum, residual)


def wrong_results(kernels: Any, codec: str, kind: str, count: int, place: Place) -> list[str]:
    """Return the names of the results that differ from the reference's.

    Args:
        kernels: Module of kernels.
        codec: Name of the codec.
        kind: Kind of values.
        count: Number of values.
        place: Where the kernels read and write.
    """
    layout = layouts()[codec]
    values, before = values_of(kind, count), values_of(kind, count, seed=1)
    wanted = expected(codec, kind, count)
    tensor, residual = place.floats(values), place.floats(before)
    whole, out = place.bytes(len(wanted.encoded))
    summed_whole, summed = place.bytes(len(wanted.encoded_sum))
    back = place.floats(before)
    kernels.encode(layout, tensor, out)
    kernels.decode(layout, out, back)
    kernels.encode(layout, tensor, summed, residual)
    synchronize(place.device)
    outside = int((whole == CANARY).sum()) - int((out == CANARY).sum())
    summed_outside = int((summed_whole == CANARY).sum()) - int((summed == CANARY).sum())
    results = {
        "encoded": same(out, wanted.encoded),
        "decoded": same(back, wanted.decoded),
        "encoded sum": same(summed, wanted.encoded_sum),
        "residual": same(residual, wanted.residual),
        "input": same(tensor, values),
        "margins": outside == len(whole) - len(out) and summed_outside == outside,
    }
    return [name for name, right in results.items() if not right]


def measure(arguments: list[str]) -> Iterator[Row]:
    """Compare kernels with the reference.

    Args:
        arguments: Name of the kernels; then, if not the GPU's, the device.

    Raises:
        CodecError: Some bits differ, or a package is missing.
    """
    name, device = [*arguments, "cuda"][:2]
    kernels = load_kernels(name)
    sweep = [*product(KINDS, COUNTS), *product(LONG_KINDS, (LONG,))]
    broken: list[str] = []
    for codec, place in product(reference.BLOCKS, places(device)):
        wrong = [
            f"{codec} of {count} {kind}: {', '.join(found)}"
            for kind, count in sweep
            if (found := wrong_results(kernels, codec, kind, count, place))
        ]
        broken += wrong
        where = {"pinned": place.pinned, "aligned": not place.offset}
        cases = {"cases": len(sweep), "wrong": len(wrong), "first_wrong": wrong[:SHOWN]}
        yield {"codec": codec, **where, **cases}
    if broken:
        raise CodecError("; ".join(broken[:SHOWN]))
