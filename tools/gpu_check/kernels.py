"""The kernels (kernels.cu) and their launches."""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from .device import Device

THREADS = 512
COPY_BLOCKS = 32


class Launch:
    """A kernel with its arguments, which can be enqueued repeatedly.

    Args:
        device: GPU.
        function: Handle of the kernel.
        blocks: Number of thread blocks.
        threads: Threads in a block.
        arguments: Arguments as ctypes values; a changed value is used by the launches that follow.
    """

    def __init__(
        self, device: Device, function: int, blocks: int, threads: int, arguments: list[Any]
    ) -> None:
        self.device = device
        self.arguments = arguments
        self._pointers = (c_void_p * max(len(arguments), 1))(*map(ctypes.addressof, arguments))
        self._shape = (function, blocks, 1, 1, threads, 1, 1, 0)

    def __call__(self, stream: int) -> None:
        """Enqueue the kernel."""
        self.device.call("cuLaunchKernel", *self._shape, stream, self._pointers, None)


class Kernels:
    """The kernels of one loaded module.

    Args:
        device: GPU.
        image: File of machine code from `build_kernels`.
    """

    def __init__(self, device: Device, image: Path) -> None:
        self.device = device
        module = c_void_p()
        device.call("cuModuleLoadData", ctypes.byref(module), image.read_bytes())
        self.module = module.value or 0
        self._result = device.allocate(4096)
        device.call("cuCtxSynchronize")

    def function(self, name: str) -> int:
        """Return the handle of a kernel."""
        handle = c_void_p()
        self.device.call("cuModuleGetFunction", ctypes.byref(handle), self.module, name.encode())
        return handle.value or 0

    def launch(self, name: str, blocks: int, threads: int, *arguments: Any) -> Launch:
        """Return a launch of a kernel."""
        return Launch(self.device, self.function(name), blocks, threads, list(arguments))

    def nothing(self) -> Launch:
        """Return a kernel that ends at once."""
        return self.launch("nothing", 1, 1)

    def fill_pattern(self, address: int, num_words: int, seed: int) -> Launch:
        """Return a kernel that writes seed, seed + 1, ... to device memory."""
        return self.launch(
            "fill_pattern", 256, 256, c_uint64(address), c_uint64(num_words), c_uint32(seed)
        )

    def copy(self, target: int, source: int, num_bytes: int, blocks: int = COPY_BLOCKS) -> Launch:
        """Return a kernel that copies memory with the multiprocessors, without a copy engine."""
        quads = c_uint64(num_bytes // 16)
        return self.launch("copy_words", blocks, THREADS, c_uint64(target), c_uint64(source), quads)

    def copy_and_flag(self, target: int, source: int, num_bytes: int, ready: int) -> Launch:
        """Return a kernel that copies and then stores a flag, given as its last argument."""
        ended = self.device.allocate(4096)
        self.launch("fill_pattern", 1, 1, c_uint64(ended), c_uint64(1), c_uint32(0))(0)
        self.device.call("cuCtxSynchronize")
        addresses = [c_uint64(target), c_uint64(source), c_uint64(num_bytes // 16)]
        flag = [c_uint64(ended), c_uint64(ready), c_uint32(0)]
        return self.launch("copy_words_and_flag", COPY_BLOCKS, THREADS, *addresses, *flag)

    def set_flag(self, ready: int) -> Launch:
        """Return a kernel that stores a flag, which is the kernel's last argument."""
        return self.launch("set_flag", 1, 1, c_uint64(ready), c_uint32(0))

    def spin_until(self, word: int) -> Launch:
        """Return a kernel of one thread that waits until a word reaches its last argument."""
        return self.launch("spin_until", 1, 1, c_uint64(word), c_uint32(0))

    def busy(self, turns: int) -> Launch:
        """Return a kernel that fills every multiprocessor with arithmetic."""
        blocks = 2 * self.device.attribute(16)
        return self.launch("busy", blocks, 1024, c_uint64(turns), c_uint64(self._result))
