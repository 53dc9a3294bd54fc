"""The module `torch.teststream` of PyTorch's test device, with the names that `torch.cuda` has.

The device is made at the first call that needs it, so a process may fork before. `load` registers
it with PyTorch, and with Slipstream as a device whose driver is the stand-in in the same library.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

NAME = "teststream"

_Function = ctypes.CFUNCTYPE(None, ctypes.c_int64)
_library: Any = None
_functions: dict[int, Any] = {}  # functions that streams will call
_numbers = itertools.count()
_is_capturing = False


def load(library: Path) -> None:
    """Register the device with PyTorch and with Slipstream; once in a process."""
    global _library
    torch.utils.rename_privateuse1_backend(NAME)
    torch.ops.load_library(str(library))
    torch._register_device_module(NAME, sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend()
    _library = ctypes.CDLL(str(library))
    _library.teststream_kernel_address.restype = ctypes.c_uint64
    atexit.register(synchronize)  # before the objects of C++ go that streams use
    from slipstream.torch.cuda.kinds import KINDS, DeviceKind

    KINDS[NAME] = DeviceKind(NAME, str(library), lambda stream: stream.stream_id)


def configure(
    longest_delay: float = 0.0,
    seed: int = 1,
    to_host_rate: float = 0.0,
    to_device_rate: float = 0.0,
) -> None:
    """Choose the device's speed, before its first use.

    Args:
        longest_delay: Longest delay in seconds before a command of a stream (default 0).
        seed: Seed of the delays (default 1).
        to_host_rate: Bytes per second of copies to the host; 0, the default, is unlimited.
        to_device_rate: Bytes per second of copies to the device; 0, the default, is unlimited.
    """
    _library.teststream_configure(
        ctypes.c_int64(int(longest_delay * 1e6)),
        ctypes.c_uint64(seed),
        ctypes.c_double(to_host_rate),
        ctypes.c_double(to_device_rate),
    )


def launch(function: Callable[[], None]) -> None:
    """Call a function in the current stream."""
    number = next(_numbers)

    def call(_: int) -> None:
        try:
            function()
        finally:
            del _functions[number]

    _functions[number] = _Function(call)
    _library.teststream_launch(_functions[number], ctypes.c_int64(number))


def sleep(seconds: float) -> None:
    """Keep the current stream busy; return at once."""
    _library.teststream_sleep(ctypes.c_int64(int(seconds * 1e6)))


def kernel_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory of a contiguous tensor as a CPU tensor, for functions that streams call."""
    num_bytes = tensor.numel() * tensor.element_size()
    if num_bytes == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    memory = ctypes.c_uint64(tensor.data_ptr())
    address = _library.teststream_kernel_address(memory, ctypes.c_uint64(num_bytes))
    raw = (ctypes.c_char * num_bytes).from_address(address)
    return torch.frombuffer(raw, dtype=torch.uint8).view(tensor.dtype).view(tensor.shape)


def describe() -> str:
    """Return the faults of the device, or what its streams do."""
    text = ctypes.create_string_buffer(10_000)
    _library.teststream_describe(text, ctypes.c_uint64(len(text)))
    return text.value.decode()


@contextlib.contextmanager
def graph() -> Iterator[None]:
    """Let streams count as captured into a graph."""
    global _is_capturing
    _is_capturing = True
    try:
        yield
    finally:
        _is_capturing = False


# What PyTorch asks for, under the names of torch.cuda.


class Stream(torch.Stream):
    """Stream of the device."""

    def __new__(cls, device: Any = None, priority: int = 0) -> Stream:
        return super().__new__(cls, device=NAME, priority=priority)


class Event(torch.Event):
    """Event of the device."""

    def __new__(cls, enable_timing: bool = False, **_: Any) -> Event:
        return super().__new__(cls, device=NAME)


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def init() -> None:
    pass


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    pass


def device(device: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def current_stream(device: Any = None) -> torch.Stream:
    return torch.accelerator.current_stream()


def default_stream(device: Any = None) -> torch.Stream:
    return torch.Stream(
        stream_id=0, device_index=0, device_type=int(torch._C._autograd.DeviceType.PrivateUse1)
    )


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


@contextlib.contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    before = current_stream()
    set_stream(before if stream is None else stream)
    try:
        yield
    finally:
        set_stream(before)


def synchronize(device: Any = None) -> None:
    torch.accelerator.synchronize()


def is_current_stream_capturing() -> bool:
    return _is_capturing


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16]


def manual_seed_all(seed: int) -> None:
    """Do nothing, because operators use the generator of the CPU."""


manual_seed = manual_seed_all


def _is_in_bad_fork() -> bool:
    return False
