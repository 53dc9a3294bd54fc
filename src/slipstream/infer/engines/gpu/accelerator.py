"""The device of an engine: its memory, its streams, and calls that are recorded once."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Array

# PyTorch has to run a call this often before a CUDA graph can record it: libraries allocate and
# choose their algorithms in the first runs.
WARM_UPS = 3


@dataclass(frozen=True)
class Accelerator:
    """A device of PyTorch, through the functions that all of its devices have under one name.

    The device is a GPU; in tests it is also the CPU, on which every call is complete at once, or a
    device whose streams are threads.

    Args:
        name: Name of the device in PyTorch, such as "cuda:1" or "cpu".
    """

    name: str

    @property
    def device(self) -> torch.device:
        """The device as PyTorch names it in calls."""
        return torch.device(self.name)

    @property
    def is_host(self) -> bool:
        """Whether the device is the CPU, which reads host memory without a copy."""
        return self.device.type == "cpu"

    @property
    def card(self) -> int:
        """Number of the GPU."""
        return self.device.index or 0

    @property
    def compiles(self) -> bool:
        """Whether Inductor generates code for the device."""
        return self.device.type in ("cpu", "cuda")

    def current(self) -> AbstractContextManager[Any]:
        """Return a context in which calls without a device go to this device."""
        return nullcontext() if self.is_host else self._module.device(self.device)

    def stream(self) -> Any:
        """Return a new stream."""
        with self.current():
            return self._module.Stream()

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context in which calls are queued in a stream."""
        return self._module.stream(stream)

    def event(self) -> Any:
        """Return a new event, which orders streams and lets the host wait for a stream."""
        with self.current():
            return self._module.Event()

    def empty(self, dtype: np.dtype[Any], shape: Sequence[int]) -> torch.Tensor:
        """Return a tensor in the device's memory, with any content."""
        return torch.empty(tuple(shape), dtype=torch_dtype(dtype), device=self.device)

    def zeros(self, dtype: np.dtype[Any], shape: Sequence[int]) -> torch.Tensor:
        """Return a tensor of zeros, which any stream may read at once."""
        tensor = self.empty(dtype, shape).zero_()
        self._module.synchronize(self.device)
        return tensor

    def pinned(self, dtype: np.dtype[Any], shape: Sequence[int]) -> HostMemory:
        """Return host memory that the device copies from and to while the CPU does other work."""
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        with self.current():
            raw = torch.empty(max(count, 1), dtype=torch.uint8, pin_memory=not self.is_host)[:count]
        tensor = raw.view(torch_dtype(dtype)).view(tuple(shape))
        owner = raw.numpy()
        return HostMemory(owner.view(dtype).reshape(tuple(shape)), tensor, owner)

    def warmed(self, call: Callable[[], None], stream: Any) -> None:
        """Run a call in a stream until it is warm, and wait for its end."""
        with self.current(), self.on(stream):
            for _ in range(WARM_UPS):
                call()
            done = self.event()
            done.record(stream)
        done.synchronize()

    def recorded(self, call: Callable[[], None], stream: Any) -> Callable[[], None]:
        """Run a call in a stream until it is warm; return a function that repeats it in a stream.

        On a GPU, a CUDA graph records the call, so repeating it costs one launch. The call must
        always use the same memory. Calls of other threads are not recorded.

        Raises:
            UnsupportedError: the call cannot be recorded, because it waits for the device.
        """
        self.warmed(call, stream)
        if self.device.type != "cuda":
            return call
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                self.current(),
                torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
            ):
                call()
        except RuntimeError as error:
            first = str(error).partition("\n")[0]
            raise UnsupportedError(f"a CUDA graph cannot record the model: {first}") from error
        return graph.replay

    def trim(self) -> None:
        """Give memory that PyTorch holds and no tensor uses back to the device.

        Other engines and other processes on the GPU cannot use memory that PyTorch holds.
        """
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def _module(self) -> Any:
        return torch.get_device_module(self.device)


@dataclass(frozen=True, eq=False)
class HostMemory:
    """One piece of pinned host memory, for NumPy and for PyTorch.

    Args:
        array: Array of NumPy in this memory.
        tensor: Tensor of PyTorch in this memory.
        owner: Bytes of the memory. `array` and all views of it keep this object alive.
    """

    array: Array
    tensor: torch.Tensor
    owner: Array


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Return PyTorch's dtype for one of NumPy or `ml_dtypes`.

    Raises:
        UnsupportedError: PyTorch has no such dtype.
    """
    found = getattr(torch, str(dtype), None)
    if not isinstance(found, torch.dtype) or found.itemsize != dtype.itemsize:
        raise UnsupportedError(f"PyTorch has no dtype {dtype}")
    return found


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Return the dtype of NumPy or `ml_dtypes` for one of PyTorch."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(getattr(ml_dtypes, name, name))
