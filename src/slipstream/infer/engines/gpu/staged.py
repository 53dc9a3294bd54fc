"""Calls of a model on a device, with inputs and results in host memory.

A call has three stages, each in a stream of its own: inputs are copied to the device, the model
computes, and results are copied back. Calls of several threads overlap: while one computes, the
inputs of the next are on the way in, and the results of the one before on the way out. Each call
borrows a lane, which has its own memory for inputs and results, in pinned host memory and on the
device. The model itself always reads and writes the same device memory, as CUDA graphs require.
"""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from slipstream.errors import UsageError
from slipstream.infer.engines.gpu.accelerator import Accelerator, HostMemory, numpy_dtype
from slipstream.infer.engines.pool import Pool
from slipstream.infer.engines.protocol import Small, UnprofiledExecutable
from slipstream.infer.graph.graph import Array


@dataclass(frozen=True)
class DeviceCall:
    """A model that is ready to compute on a device.

    Args:
        inputs: Tensors on the device that the model reads, by input name.
        outputs: Tensors on the device that the model writes, by output name.
        launch: Function that queues one computation in the current stream.
        context: Function that returns a context in which `launch` has to be called (default: no
            context).
        release: Function that releases the memory of the model, after its last call (default: the
            memory goes with the other members). It keeps the memory that `launch` reads.
    """

    inputs: Mapping[str, torch.Tensor]
    outputs: Mapping[str, torch.Tensor]
    launch: Callable[[], None]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    release: Callable[[], None] = lambda: None


class StagedExecutable(UnprofiledExecutable):
    """A model on a device; see `Executable`.

    Args:
        accelerator: Device of the model.
        call: Model that is ready to compute. The executable is its only user.
        stream: Stream in which the model computes.
        small: Form of each constant that the engine rounds, by name; see `Executable.small`.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        call: DeviceCall,
        stream: Any,
        small: Mapping[str, Small] | None = None,
    ) -> None:
        self.small: Mapping[str, Small] = small or {}
        self._accelerator = accelerator
        self._call: DeviceCall | None = call
        self._compute = stream
        self._copy_in, self._copy_out = accelerator.stream(), accelerator.stream()
        self._queueing = threading.Lock()
        self._lanes: Pool[_Lane] = Pool(lambda: _Lane(accelerator, self._open_call()))
        # Memory that `buffer` returned and callers still use, by its address.
        self._buffers: dict[int, torch.Tensor] = {}

    def buffer(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return pinned memory, from which `run` copies to the device without a further copy."""
        memory = self._accelerator.pinned(dtype, shape)
        address = memory.tensor.data_ptr()
        self._buffers[address] = memory.tensor
        weakref.finalize(memory.owner, self._buffers.pop, address, None)
        return memory.array

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See `Executable`."""
        call = self._open_call()
        with self._lanes.borrowed() as lane:
            sources = {name: self._source(name, inputs[name], lane) for name in call.inputs}
            with self._queueing, self._accelerator.current():
                self._queue(call, lane, sources)
            lane.done.synchronize()
            return {name: memory.array.copy() for name, memory in lane.host_outputs.items()}

    def _open_call(self) -> DeviceCall:
        """Return the model, unless the executable is closed."""
        if self._call is None:
            raise UsageError("the executable is closed; prepare the model again")
        return self._call

    def _source(self, name: str, array: Array, lane: _Lane) -> torch.Tensor:
        """Return an input in pinned memory: in the caller's buffer, or copied to the lane's."""
        memory = lane.host_inputs[name]
        address, _ = array.__array_interface__["data"]
        buffer = self._buffers.get(address)
        if buffer is not None and buffer.shape == array.shape:
            return buffer
        np.copyto(memory.array, array)
        return memory.tensor

    def _queue(self, call: DeviceCall, lane: _Lane, sources: Mapping[str, torch.Tensor]) -> None:
        """Queue the three stages of a call; events let each stage wait for the one before."""
        on = self._accelerator.on
        with on(self._copy_in):
            for name, source in sources.items():
                lane.inputs[name].copy_(source, non_blocking=True)
            lane.arrived.record(self._copy_in)
        lane.arrived.wait(self._compute)
        with on(self._compute), call.context():
            for name, tensor in call.inputs.items():
                tensor.copy_(lane.inputs[name], non_blocking=True)
            call.launch()
            for name, tensor in lane.outputs.items():
                tensor.copy_(call.outputs[name], non_blocking=True)
            lane.computed.record(self._compute)
        lane.computed.wait(self._copy_out)
        with on(self._copy_out):
            for name, memory in lane.host_outputs.items():
                memory.tensor.copy_(lane.outputs[name], non_blocking=True)
            lane.done.record(self._copy_out)

    def close(self) -> None:
        """See `Executable`. The memory on the device is given back to the driver."""
        call, self._call = self._call, None
        self._lanes.clear()
        if call is not None:
            call.release()
            del call
            self._accelerator.trim()


class _Lane:
    """The memory and the events of one call at a time."""

    def __init__(self, accelerator: Accelerator, call: DeviceCall) -> None:
        self.inputs = {name: _empty_like(tensor) for name, tensor in call.inputs.items()}
        self.outputs = {name: _empty_like(tensor) for name, tensor in call.outputs.items()}
        self.host_inputs = _host_memory(accelerator, call.inputs)
        self.host_outputs = _host_memory(accelerator, call.outputs)
        self.arrived, self.computed, self.done = (accelerator.event() for _ in range(3))


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor with the device, dtype and shape of another."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _host_memory(
    accelerator: Accelerator, tensors: Mapping[str, torch.Tensor]
) -> dict[str, HostMemory]:
    return {
        name: accelerator.pinned(numpy_dtype(tensor.dtype), tuple(tensor.shape))
        for name, tensor in tensors.items()
    }
