"""The rates of the codecs of CUDA tensors, and the time by which they delay other kernels.

Each operation is repeated on the same tensor. So a tensor that fits in the GPU's cache is read from
the cache, like a gradient that was just computed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch

from ..bench import Row, rounded
from ..host_memory import MEBIBYTE
from .bits import layouts, load_kernels

SIZES = (1, 4, 64)  # MiB of float32
CAPS = (2, 4, 8, 16, 32, 64, 132, None)
CAP_MEBIBYTES = 4
CALLS = 20
REPEATS = 5
PRODUCT_SIZE = 4096
PRODUCTS = 40
BESIDE_CAPS = (4, 8, 16, 32, None)
BESIDE_CALLS = 60

Call = Callable[[], object]


def seconds_per_call(call: Call, *, graph: bool) -> float:
    """Return the seconds that a call takes on the GPU.

    With `graph`, a CUDA graph repeats the call, so the time of the launch is not included.
    """
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
        torch.cuda.synchronize()
        run = repeated(call)
        if graph:
            captured = torch.cuda.CUDAGraph()
            captured.capture_begin(capture_error_mode="thread_local")
            run()
            captured.capture_end()
            run = captured.replay
        times: list[float] = []
        for _ in range(REPEATS):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            run()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 1e3 / CALLS)
    return sorted(times)[REPEATS // 2]


def repeated(call: Call) -> Call:
    """Return a function that repeats a call `CALLS` times."""

    def run() -> None:
        for _ in range(CALLS):
            call()

    return run


def caller_seconds(call: Call) -> float:
    """Return the seconds that a call takes on the CPU."""
    times: list[float] = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        repeated(call)()
        times.append((time.perf_counter() - start) / CALLS)
    torch.cuda.synchronize()
    return sorted(times)[REPEATS // 2]


class Buffers:
    """A tensor, its residual, and memory for its encoded bytes on the GPU and on the host.

    Args:
        layout: Layout of the encoded bytes, which also names the codec.
        mebibytes: Size of the tensor in MiB.
    """

    def __init__(self, layout: Any, mebibytes: int) -> None:
        self.layout, self.count = layout, mebibytes * MEBIBYTE // 4
        self.num_bytes = layout.encoded_bytes(self.count)
        self.values = torch.randn(self.count, device="cuda")
        self.residual = torch.zeros_like(self.values)
        self.memory = torch.empty(self.num_bytes, dtype=torch.uint8, device="cuda")
        self.host = torch.empty(self.num_bytes, dtype=torch.uint8, pin_memory=True)

    def row(self, operation: str, seconds: float, **facts: object) -> Row:
        """Return the time and the rates of an operation.

        One rate counts the bytes of the tensor, and the other counts the encoded bytes.
        """
        return {
            "codec": self.layout.name,
            "mebibytes": self.count * 4 // MEBIBYTE,
            "operation": operation,
            **facts,
            "microseconds": rounded(seconds * 1e6),
            "values_gb_per_s": rounded(self.count * 4 / seconds / 1e9),
            "encoded_gb_per_s": rounded(self.num_bytes / seconds / 1e9),
        }


def operations(kernels: Any, buffers: Buffers) -> dict[str, Call]:
    """Return the operations to measure (encoding, decoding and copying), by name."""
    layout, values, residual = buffers.layout, buffers.values, buffers.residual
    memory, host = buffers.memory, buffers.host

    def encode_and_copy() -> None:
        kernels.encode(layout, values, memory)
        host.copy_(memory, non_blocking=True)

    def copy_and_decode() -> None:
        memory.copy_(host, non_blocking=True)
        kernels.decode(layout, memory, values)

    return {
        "encode to device": lambda: kernels.encode(layout, values, memory),
        "encode to device with feedback": lambda: kernels.encode(layout, values, memory, residual),
        "encode to host": lambda: kernels.encode(layout, values, host),
        "encode to host with feedback": lambda: kernels.encode(layout, values, host, residual),
        "encode to device, copy to host": encode_and_copy,
        "copy to host": lambda: host.copy_(memory, non_blocking=True),
        "decode from device": lambda: kernels.decode(layout, memory, values),
        "decode from host": lambda: kernels.decode(layout, host, values),
        "copy to device, decode": copy_and_decode,
        "copy to device": lambda: memory.copy_(host, non_blocking=True),
    }


def caller_times(kernels: Any, layout: Any) -> Iterator[Row]:
    """Yield, for each operation, the CPU time of a call with a tensor of the smallest size."""
    for operation, call in operations(kernels, Buffers(layout, SIZES[0])).items():
        seconds = caller_seconds(call)
        yield {
            "codec": layout.name,
            "operation": operation,
            "caller_microseconds": rounded(seconds * 1e6),
        }


def capped(kernels: Any, buffers: Buffers) -> Iterator[Row]:
    """Yield rates of Triton kernels with a limited number of programs (thread blocks).

    The rates show how many programs are enough to use the whole bandwidth to the host.
    """
    layout, values, host = buffers.layout, buffers.values, buffers.host
    for cap in CAPS:
        limit = cap or sys.maxsize
        facts = {"programs": cap or "all"}
        calls: dict[str, Call] = {
            "encode to host": partial(kernels.encode, layout, values, host, max_programs=limit),
            "decode from host": partial(kernels.decode, layout, host, values, max_programs=limit),
        }
        for operation, call in calls.items():
            yield buffers.row(operation, seconds_per_call(call, graph=True), **facts)


def products_seconds(beside: Call | None) -> float:
    """Return the seconds of a matrix product while another stream repeats a call.

    Args:
        beside: Call that the other stream repeats; None if the other stream is empty.
    """
    matrix = torch.randn(PRODUCT_SIZE, PRODUCT_SIZE, device="cuda", dtype=torch.bfloat16)
    streams = [torch.cuda.Stream() for _ in range(2)]
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.mm(matrix, matrix)
    torch.cuda.synchronize()
    with torch.cuda.stream(streams[1]):
        for _ in range(BESIDE_CALLS if beside else 0):
            assert beside is not None
            beside()
    with torch.cuda.stream(streams[0]):
        first.record()
        for _ in range(PRODUCTS):
            torch.mm(matrix, matrix)
        last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3 / PRODUCTS


def beside_products(kernels: Any, buffers: Buffers) -> Iterator[Row]:
    """Yield times of matrix products while a Triton kernel encodes to host memory.

    The number of the kernel's programs (thread blocks) varies, to show how much they delay the
    matrix products.
    """
    layout, values, memory, host = buffers.layout, buffers.values, buffers.memory, buffers.host
    calls: dict[str, Call | None] = {"nothing": None}
    calls["copy to host"] = lambda: host.copy_(memory, non_blocking=True)
    for cap in BESIDE_CAPS:
        limit = cap or sys.maxsize
        calls[f"encode to host, {cap or 'all'} programs"] = partial(
            kernels.encode, layout, values, host, max_programs=limit
        )
    for beside, call in calls.items():
        times = sorted(products_seconds(call) for _ in range(REPEATS))
        product_time = {"product_microseconds": rounded(times[REPEATS // 2] * 1e6)}
        yield {"codec": layout.name, "beside": beside, **product_time}


def measure(arguments: list[str]) -> Iterator[Row]:
    """Yield the rates of all codecs, sizes and operations.

    For Triton, also yield rates with a limited number of programs (thread blocks), and times of
    matrix products while a kernel encodes.

    Args:
        arguments: Name of the kernels ("triton" or "torch").

    Raises:
        CodecError: A package is missing.
    """
    (name,) = arguments
    kernels = load_kernels(name)
    yield {"kernels": name, "version": sys.modules[name].__version__}
    is_triton = name == "triton"
    for layout, mebibytes in product(layouts().values(), SIZES):
        buffers = Buffers(layout, mebibytes)
        for operation, call in operations(kernels, buffers).items():
            seconds = seconds_per_call(call, graph=is_triton)
            yield buffers.row(operation, seconds)
    for layout in layouts().values():
        yield from caller_times(kernels, layout)
    if is_triton:
        for layout in layouts().values():
            yield from capped(kernels, Buffers(layout, CAP_MEBIBYTES))
        yield from beside_products(kernels, Buffers(layouts()["fp16"], SIZES[-1]))
