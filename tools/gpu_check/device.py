"""A GPU with its memory, streams, events and copies, through the driver's API."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_uint64, c_void_p

from .driver import Driver

ATTRIBUTES = {
    "multiprocessors": 16,
    "copy_engines": 40,
    "compute_capability_major": 75,
    "compute_capability_minor": 76,
    "device_pointer_of_registered_memory_is_host_pointer": 91,
    "stream_memory_operations": 92,
    "can_flush_remote_writes": 98,
    "host_register_supported": 99,
    "stream_memory_operations_64_bit": 122,
}
NON_BLOCKING = 1
NO_TIMING = 2
PORTABLE_AND_MAPPED = 1 | 2
GEQ = 0
WAIT_VALUE_32, WRITE_VALUE_32 = 1, 2


class Device:
    """The first GPU, in its primary context, which PyTorch uses too.

    Handles and addresses are plain numbers. Nothing is freed, because a process of the check is
    short.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.call = driver.call
        self.ordinal = c_int()
        self.call("cuDeviceGet", ctypes.byref(self.ordinal), 0)
        context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.ordinal)
        self.context = context.value
        self.enter()

    def enter(self) -> None:
        """Make the context current in the calling thread."""
        self.call("cuCtxSetCurrent", self.context)

    def name(self) -> str:
        """Return the name of the GPU."""
        buffer = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", buffer, 256, self.ordinal)
        return buffer.value.decode()

    def attribute(self, number: int) -> int:
        """Return an attribute of the GPU."""
        value = c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self.ordinal)
        return value.value

    def priorities(self) -> tuple[int, int]:
        """Return the lowest and the highest priority of streams."""
        least, greatest = c_int(), c_int()
        self.call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
        return least.value, greatest.value

    def allocate(self, num_bytes: int) -> int:
        """Return the address of new device memory."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), num_bytes)
        return address.value

    def allocate_host(self, num_bytes: int) -> int:
        """Return the host address of new pinned memory."""
        address = c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(address), num_bytes, PORTABLE_AND_MAPPED)
        return address.value or 0

    def register(self, address: int, num_bytes: int) -> None:
        """Pin host memory and map it for the GPU."""
        self.call("cuMemHostRegister_v2", address, num_bytes, PORTABLE_AND_MAPPED)

    def unregister(self, address: int) -> None:
        """Undo `register`."""
        self.call("cuMemHostUnregister", address)

    def address_of(self, host: int) -> int:
        """Return the device address of pinned host memory."""
        address = c_uint64()
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), host, 0)
        return address.value

    def stream(self, *, priority: int = 0, flags: int = NON_BLOCKING) -> int:
        """Return a new stream."""
        handle = c_void_p()
        self.call("cuStreamCreateWithPriority", ctypes.byref(handle), flags, priority)
        return handle.value or 0

    def event(self, *, flags: int = 0) -> int:
        """Return a new event."""
        handle = c_void_p()
        self.call("cuEventCreate", ctypes.byref(handle), flags)
        return handle.value or 0

    def record(self, event: int, stream: int) -> None:
        """Record an event at the end of a stream."""
        self.call("cuEventRecord", event, stream)

    def is_done(self, event: int) -> bool:
        """Return whether the GPU has passed an event."""
        return self.driver.is_ready("cuEventQuery", event)

    def milliseconds(self, first: int, last: int) -> float:
        """Return the time between two events that the GPU has passed."""
        elapsed = c_float()
        self.call("cuEventElapsedTime", ctypes.byref(elapsed), first, last)
        return elapsed.value

    def synchronize(self, stream: int) -> None:
        """Wait until a stream is empty."""
        self.call("cuStreamSynchronize", stream)

    def to_host(self, host: int, source: int, num_bytes: int, stream: int) -> None:
        """Enqueue a copy from device memory to host memory."""
        self.call("cuMemcpyDtoHAsync_v2", host, source, num_bytes, stream)

    def to_device(self, target: int, host: int, num_bytes: int, stream: int) -> None:
        """Enqueue a copy from host memory to device memory."""
        self.call("cuMemcpyHtoDAsync_v2", target, host, num_bytes, stream)

    def wait_value(self, stream: int, address: int, value: int) -> None:
        """Make a stream wait until the word at a device address is `value` or higher."""
        self.call("cuStreamWaitValue32_v2", stream, address, value, GEQ)

    def write_value(self, stream: int, address: int, value: int) -> None:
        """Make a stream write a word at a device address once its earlier work has completed."""
        self.call("cuStreamWriteValue32_v2", stream, address, value, 0)

    def write_and_wait(self, stream: int, write: tuple[int, int], wait: tuple[int, int]) -> None:
        """Make a stream write one word and then wait for another word, with one call of the driver.

        Args:
            write: Device address and value of the word to write.
            wait: Device address and value of the word to wait for.
        """
        # CUstreamBatchMemOpParams is six 64-bit numbers: operation, address, value, flags, alias.
        numbers = (WRITE_VALUE_32, *write, 0, 0, 0, WAIT_VALUE_32, *wait, GEQ, 0, 0)
        self.call("cuStreamBatchMemOp_v2", stream, 2, (c_uint64 * 12)(*numbers), 0)
