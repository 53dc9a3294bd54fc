"""Operations to try while a stream waits: calls of the driver and of PyTorch.

Each function prepares an operation and returns an action, which executes the operation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_uint64, c_void_p
from dataclasses import dataclass

from .bench import Bench
from .device import NO_TIMING
from .host_memory import MEBIBYTE, map_memfd, registered, touch
from .kernels import Kernels

SIZE = 16 * MEBIBYTE
LEGACY_STREAM = 0

Action = Callable[[], object]


@dataclass(frozen=True)
class Room:
    """The memory that the operations use, and the stream on which they enqueue work.

    Args:
        other: Stream other than the waiting stream.
        memory: Device memory.
        host: Registered memory.
        pageable: Ordinary memory.
    """

    bench: Bench
    other: int
    memory: int
    host: int
    pageable: int

    def call(self, name: str, *arguments: object) -> Action:
        """Return an action that calls a function of the driver."""
        return lambda: self.bench.device.call(name, *arguments)

    def finished(self, *actions: Action) -> Action:
        """Return an action that executes `actions`, then waits until stream `other` is empty."""
        return lambda: (*[act() for act in actions], self.bench.device.synchronize(self.other))


def kernel(room: Room) -> Action:
    """Return an action that launches a kernel on another stream and waits until it ends."""
    launch = room.bench.kernels.nothing()
    launch(room.other)
    return room.finished(lambda: launch(room.other))


def legacy_kernel(room: Room) -> Action:
    """Return an action that launches a kernel on the default stream and waits until it ends."""
    launch = room.bench.kernels.nothing()

    def act() -> None:
        launch(LEGACY_STREAM)
        room.bench.device.synchronize(LEGACY_STREAM)

    act()
    return act


def load_module(room: Room) -> Action:
    """Return an action that loads a module of kernels and launches none of them."""
    module = c_void_p()
    return room.call("cuModuleLoadData", ctypes.byref(module), room.bench.image.read_bytes())


def first_launch(room: Room) -> Action:
    """Load a module; return an action that gets the handle of a kernel and launches it."""
    kernels = Kernels(room.bench.device, room.bench.image)
    return room.finished(lambda: kernels.nothing()(room.other))


def unload_module(room: Room) -> Action:
    """Run a kernel of a new module; return an action that unloads the module."""
    kernels = Kernels(room.bench.device, room.bench.image)
    kernels.nothing()(room.other)
    room.bench.device.synchronize(room.other)
    return room.call("cuModuleUnload", kernels.module)


def free_async(room: Room) -> Action:
    """Return an action that frees memory with cuMemFreeAsync on another stream."""
    address = c_uint64()
    room.bench.device.call("cuMemAllocAsync", ctypes.byref(address), SIZE, room.other)
    return room.call("cuMemFreeAsync", address, room.other)


def unregister(room: Room) -> Action:
    """Register host memory; return an action that unregisters it."""
    address = registered(room.bench.device, SIZE).host
    return room.call("cuMemHostUnregister", address)


def register(room: Room) -> Action:
    """Write to all pages of host memory; return an action that registers it."""
    address = map_memfd(SIZE)
    touch(address, SIZE)
    return room.call("cuMemHostRegister_v2", address, SIZE, 3)


def event_round(room: Room) -> Action:
    """Return an action that records a new event on another stream and waits for the event."""
    device = room.bench.device

    def act() -> None:
        event = device.event(flags=NO_TIMING)
        device.record(event, room.other)
        device.call("cuEventSynchronize", event)
        device.call("cuEventDestroy_v2", event)

    return act


def host_function(room: Room) -> Action:
    """Return an action that enqueues a host function on another stream and waits until it ends."""
    loops = room.bench.loops
    return room.finished(room.call("cuLaunchHostFunc", room.other, loops.raise_word, room.host))


def torch_action(name: str) -> Callable[[Room], Action]:
    """Return a function that prepares the named operation of PyTorch and returns its action."""

    def prepare(_: Room) -> Action:
        import torch

        small = torch.ones(64, 64, device="cuda")
        torch.cuda.synchronize()
        cached = torch.ones(SIZE, device="cuda")  # its memory stays in PyTorch's cache
        del cached
        stream = torch.cuda.Stream()

        def product() -> None:
            with torch.cuda.stream(stream):
                torch.mm(small.double(), small.double())
            stream.synchronize()

        actions: dict[str, Action] = {
            "empty_cache": torch.cuda.empty_cache,
            "new tensor of 1 GiB": lambda: torch.empty(1 << 30, dtype=torch.uint8, device="cuda"),
            "first double product": product,
            "pin_memory": lambda: torch.empty(SIZE, pin_memory=True),
        }
        return actions[name]

    return prepare


def _new(name: str, make: Callable[[Room], list[object]]) -> Callable[[Room], Action]:
    return lambda room: room.call(name, *make(room))


OPERATIONS: dict[str, Callable[[Room], Action]] = {
    "kernel on another stream": kernel,
    "copy to the host on another stream": lambda room: room.finished(
        room.call("cuMemcpyDtoHAsync_v2", room.host, room.memory, SIZE, room.other)
    ),
    "copy to the device on another stream": lambda room: room.finished(
        room.call("cuMemcpyHtoDAsync_v2", room.memory, room.host, SIZE, room.other)
    ),
    "copy to pageable memory on another stream": lambda room: room.finished(
        room.call("cuMemcpyDtoHAsync_v2", room.pageable, room.memory, SIZE, room.other)
    ),
    "synchronous copy to the host": _new(
        "cuMemcpyDtoH_v2", lambda room: [room.pageable, room.memory, SIZE]
    ),
    "host function on another stream": host_function,
    "event on another stream": event_round,
    "kernel on the default stream": legacy_kernel,
    "kernel on the default stream, the wait in an ordinary stream": legacy_kernel,
    "cuMemAlloc": _new("cuMemAlloc_v2", lambda _: [ctypes.byref(c_uint64()), SIZE]),
    "cuMemFree": _new("cuMemFree_v2", lambda room: [room.bench.device.allocate(SIZE)]),
    "cuMemAllocAsync": lambda room: room.call(
        "cuMemAllocAsync", ctypes.byref(c_uint64()), SIZE, room.other
    ),
    "cuMemFreeAsync": free_async,
    "cuMemHostAlloc": _new("cuMemHostAlloc", lambda _: [ctypes.byref(c_void_p()), SIZE, 3]),
    "cuMemFreeHost": _new("cuMemFreeHost", lambda room: [room.bench.device.allocate_host(SIZE)]),
    "cuMemHostRegister": register,
    "cuMemHostUnregister": unregister,
    "cuStreamCreate": lambda room: room.bench.device.stream,
    "cuStreamDestroy": _new("cuStreamDestroy_v2", lambda room: [room.bench.device.stream()]),
    "load a module": load_module,
    "first launch of a kernel": first_launch,
    "unload a module": unload_module,
    "torch: empty_cache": torch_action("empty_cache"),
    "torch: new tensor of 1 GiB": torch_action("new tensor of 1 GiB"),
    "torch: first double product": torch_action("first double product"),
    "torch: pin_memory": torch_action("pin_memory"),
    "cuCtxSynchronize": lambda room: room.call("cuCtxSynchronize"),
}
