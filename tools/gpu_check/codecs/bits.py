"""Comparison of the codecs of CUDA tensors with a reference: all bits must be the same.

The check needs PyTorch, and for one case Triton and a C compiler, but no built package of
Slipstream.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ..bench import Row, rounded
from ..device import PORTABLE_AND_MAPPED
from ..host_memory import MEBIBYTE, map_memfd
from ..isolated import ROOT
from . import reference
from .values import KINDS, Floats, values_of

COUNTS = (1, 2, 3, 127, 128, 129, 2047, 2048, 2049, 4097, 30_011)
LONG = 1_000_003
LONG_KINDS = ("bits", "special")
MARGIN = 64  # bytes around results, which no kernel may change
CANARY = 0xA5
SHOWN = 5
REGISTERED_BYTES = 4 * MEBIBYTE
PACKAGE = "slipstream.torch.cuda"

# The package is imported from its sources, so it need not be built.
sys.path.insert(0, str(ROOT / "src"))


class CodecError(RuntimeError):
    """The bits of a kernel differ from the reference, or the kernel's package is missing."""


def load_kernels(name: str) -> ModuleType:
    """Return the kernels of Triton ("triton") or of PyTorch ("torch").

    Raises:
        CodecError: The package, Triton or PyTorch, is not installed.
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
    """The memory that kernels read and write in a check.

    Args:
        device: Device of the tensor to encode, such as "cuda".
        memory: Memory of the encoded bytes: "device", "pinned" (host memory of PyTorch) or
            "registered" (a memfd that CUDA has registered, as the engine's slots are).
        offset: Distance of the tensor and the bytes from an aligned address, in units of 4 bytes.
    """

    device: str
    memory: str
    offset: int

    def floats(self, values: Floats) -> Any:
        """Copy values to a new tensor on the device, at this place's offset."""
        tensor = torch.empty(self.offset + len(values), device=self.device)[self.offset :]
        return tensor.copy_(torch.from_numpy(values.copy()))

    def bytes(self, count: int, number: int) -> tuple[Any, Any]:
        """Return a buffer, and the part of the buffer for `count` encoded bytes.

        The margins before and after the part are filled with `CANARY`; no kernel may change them.

        Args:
            count: Number of encoded bytes.
            number: Number of the buffer; buffers with different numbers do not overlap.
        """
        first = MARGIN + 4 * self.offset
        buffer = self.buffer(first + count + MARGIN, number).fill_(CANARY)
        return buffer, buffer[first : first + count]

    def buffer(self, size: int, number: int) -> Any:
        """Return `size` bytes of this place's memory; buffers with other numbers do not overlap."""
        if self.memory == "registered":
            return registered_bytes(number)[:size]
        if self.memory == "pinned":
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)
        return torch.empty(size, dtype=torch.uint8, device=self.device)


@functools.cache
def registered_bytes(number: int) -> Any:
    """Return the bytes of a memfd that CUDA has registered; make one memfd for each number.

    Raises:
        CodecError: CUDA refused.
    """
    address = map_memfd(REGISTERED_BYTES)
    runtime = torch.cuda.cudart()
    assert runtime is not None
    code = int(runtime.cudaHostRegister(address, REGISTERED_BYTES, PORTABLE_AND_MAPPED))
    if code:
        raise CodecError(f"cudaHostRegister failed for buffer {number}: error {code}")
    memory = (ctypes.c_uint8 * REGISTERED_BYTES).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8)


def places(device: str) -> list[Place]:
    """Return the places to check on a device: each kind of memory, aligned and not aligned."""
    memories = ("device",) if device == "cpu" else ("device", "pinned", "registered")
    return [Place(device, memory, offset) for memory, offset in product(memories, (0, 1))]


def synchronize(device: str) -> None:
    """Wait until a device has completed all work."""
    if device != "cpu":
        torch.cuda.synchronize()


def same(tensor: Any, expected: np.ndarray[Any, Any]) -> bool:
    """Return whether a tensor has exactly the expected bits."""
    return tensor.cpu().numpy().tobytes() == expected.tobytes()


@dataclass(frozen=True)
class Expected:
    """The results of the reference codec for one test tensor.

    Args:
        encoded: Encoded tensor.
        decoded: Tensor after encoding and decoding.
        encoded_sum: Encoded sum of the tensor and a residual.
        residual: New residual: the error of encoding the sum.
    """

    encoded: reference.Bytes
    decoded: Floats
    encoded_sum: reference.Bytes
    residual: Floats


@functools.cache
def expected(codec: str, kind: str, count: int) -> Expected:
    """Return the reference's results for one test tensor; compute them once for all places."""
    values, before = values_of(kind, count), values_of(kind, count, seed=1)
    encoded = reference.encode(codec, values)
    encoded_sum, residual = reference.encode_with_residual(codec, values, before)
    return Expected(encoded, reference.decode(codec, encoded, count), encoded_sum, residual)


def wrong_results(kernels: Any, codec: str, kind: str, count: int, place: Place) -> list[str]:
    """Encode and decode one test tensor; return the names of the results that are wrong.

    Args:
        kernels: Module with the kernels to test.
        codec: Name of the codec.
        kind: Kind of test values, from `KINDS`.
        count: Number of values.
        place: Memory that the kernels read and write.
    """
    layout = layouts()[codec]
    values, before = values_of(kind, count), values_of(kind, count, seed=1)
    right = expected(codec, kind, count)
    tensor, residual = place.floats(values), place.floats(before)
    buffer, out = place.bytes(len(right.encoded), 0)
    summed_buffer, summed = place.bytes(len(right.encoded_sum), 1)
    back = place.floats(before)
    kernels.encode(layout, tensor, out)
    kernels.decode(layout, out, back)
    kernels.encode(layout, tensor, summed, residual)
    synchronize(place.device)
    outside = int((buffer == CANARY).sum()) - int((out == CANARY).sum())
    summed_outside = int((summed_buffer == CANARY).sum()) - int((summed == CANARY).sum())
    results = {
        "encoded": same(out, right.encoded),
        "decoded": same(back, right.decoded),
        "encoded sum": same(summed, right.encoded_sum),
        "residual": same(residual, right.residual),
        "input": same(tensor, values),
        "margins": outside == len(buffer) - len(out) and summed_outside == outside,
    }
    return [name for name, is_right in results.items() if not is_right]


def sweep_of(counts: list[str]) -> list[tuple[str, int]]:
    """Return the test tensors, each as its kind of values and its number of values.

    Without `counts`, the numbers of values are `COUNTS` and, for `LONG_KINDS`, `LONG`.
    """
    if counts:
        return list(product(KINDS, map(int, counts[0].split(","))))
    return [*product(KINDS, COUNTS), *product(LONG_KINDS, (LONG,))]


def prepared(kernels: ModuleType) -> Iterator[Row]:
    """Prepare each codec as a user does; yield the seconds, most of which compilers take.

    Args:
        kernels: Module of kernels that Slipstream must choose for the GPU.

    Raises:
        CodecError: Slipstream chose kernels other than `kernels` for the GPU.
    """
    codecs = importlib.import_module(f"{PACKAGE}.codecs")
    device = torch.device("cuda", 0)
    if codecs.kernels_for(device) is not kernels:
        raise CodecError(f"{kernels.__name__} does not run on {device}")
    for codec in layouts():
        start = time.perf_counter()
        codecs.prepare(codec, device)
        yield {"codec": codec, "prepare_seconds": rounded(time.perf_counter() - start)}


def measure(arguments: list[str]) -> Iterator[Row]:
    """Yield, for each codec and place, how many test tensors have wrong results, and which.

    Args:
        arguments: Name of the kernels, then the device (default: the GPU), then the numbers of
            values, comma-separated (default: see `sweep_of`).

    Raises:
        CodecError: The bits of a result differ, or a package is missing.
    """
    name, device, *counts = [*arguments, "cuda"][: max(2, len(arguments))]
    kernels = load_kernels(name)
    yield {"kernels": name, "version": sys.modules[name].__version__}
    if name == "triton" and device == "cuda":
        yield from prepared(kernels)
    sweep = sweep_of(counts)
    broken: list[str] = []
    for codec, place in product(reference.BLOCKS, places(device)):
        wrong = [
            f"{codec} of {count} {kind}: {', '.join(names)}"
            for kind, count in sweep
            if (names := wrong_results(kernels, codec, kind, count, place))
        ]
        broken += wrong
        where = {"memory": place.memory, "aligned": not place.offset}
        cases = {"cases": len(sweep), "wrong": len(wrong), "first_wrong": wrong[:SHOWN]}
        yield {"codec": codec, **where, **cases}
    if broken:
        raise CodecError("; ".join(broken[:SHOWN]))
