"""The CUDA driver's API, opened at run time through ctypes: no toolkit and no PyTorch is needed."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_float, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from typing import Any

LIBRARY = "libcuda.so.1"
NOT_READY = 600

_pointer_to = ctypes.POINTER

# Device addresses and handles are unsigned 64-bit numbers.
SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [_pointer_to(c_int)],
    "cuDeviceGet": [_pointer_to(c_int), c_int],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDeviceGetAttribute": [_pointer_to(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [_pointer_to(c_void_p), c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuCtxSynchronize": [],
    "cuCtxGetStreamPriorityRange": [_pointer_to(c_int), _pointer_to(c_int)],
    "cuMemAlloc_v2": [_pointer_to(c_uint64), c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemAllocAsync": [_pointer_to(c_uint64), c_size_t, c_void_p],
    "cuMemFreeAsync": [c_uint64, c_void_p],
    "cuMemHostAlloc": [_pointer_to(c_void_p), c_size_t, c_uint],
    "cuMemFreeHost": [c_void_p],
    "cuMemHostRegister_v2": [c_void_p, c_size_t, c_uint],
    "cuMemHostUnregister": [c_void_p],
    "cuMemHostGetDevicePointer_v2": [_pointer_to(c_uint64), c_void_p, c_uint],
    "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuStreamCreateWithPriority": [_pointer_to(c_void_p), c_uint, c_int],
    "cuStreamDestroy_v2": [c_void_p],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamQuery": [c_void_p],
    "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cuStreamWaitValue32_v2": [c_void_p, c_uint64, c_uint32, c_uint],
    "cuStreamWriteValue32_v2": [c_void_p, c_uint64, c_uint32, c_uint],
    "cuStreamBatchMemOp_v2": [c_void_p, c_uint, c_void_p, c_uint],
    "cuLaunchHostFunc": [c_void_p, c_void_p, c_void_p],
    "cuEventCreate": [_pointer_to(c_void_p), c_uint],
    "cuEventDestroy_v2": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventQuery": [c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventElapsedTime": [_pointer_to(c_float), c_void_p, c_void_p],
    "cuModuleLoadData": [_pointer_to(c_void_p), c_char_p],
    "cuModuleUnload": [c_void_p],
    "cuModuleGetFunction": [_pointer_to(c_void_p), c_void_p, c_char_p],
    "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p],
}


class NoDriverError(RuntimeError):
    """This machine has no CUDA driver, or the driver finds no GPU."""


class CudaError(RuntimeError):
    """A call of the driver failed."""


def load_library(name: str = LIBRARY) -> ctypes.CDLL:
    """Return the driver's library.

    Args:
        name: File name of the library.

    Raises:
        NoDriverError: The library cannot be opened.
    """
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise NoDriverError(
            f"no CUDA driver here: {name} cannot be opened ({error}); "
            "run this on a machine with an NVIDIA GPU and its driver"
        ) from error


class Driver:
    """The driver's functions; every call raises CudaError unless it succeeds.

    Args:
        name: File name of the driver's library.
    """

    def __init__(self, name: str = LIBRARY) -> None:
        library = load_library(name)
        self.functions: dict[str, Any] = {}
        for function, arguments in SIGNATURES.items():
            pointer = getattr(library, function)
            pointer.argtypes = arguments
            pointer.restype = c_int
            self.functions[function] = pointer
        result = self.functions["cuInit"](0)
        if result:
            raise NoDriverError(f"no GPU can be used: cuInit of {name} failed with error {result}")

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver, without the GIL."""
        result = self.functions[name](*arguments)
        if result:
            raise CudaError(f"{name} failed with error {result}")

    def is_ready(self, name: str, handle: int) -> bool:
        """Return whether an event or a stream has completed."""
        result = self.functions[name](handle)
        if result not in (0, NOT_READY):
            raise CudaError(f"{name} failed with error {result}")
        return result == 0
