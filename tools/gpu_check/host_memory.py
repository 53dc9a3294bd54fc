"""Host memory that CPU and GPU share: regions for data, and single words for signals."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_int, c_long, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass

from .device import Device

MEBIBYTE = 1 << 20
CACHE_LINE = 64
READ_WRITE = 1 | 2
SHARED, PRIVATE, ANONYMOUS = 1, 2, 0x20
HUGE_PAGES = 14
MEMFD_HUGE_2_MIB = 4 | (21 << 26)
FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = c_void_p
_libc.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, c_long]
_libc.munmap.argtypes = [c_void_p, c_size_t]
_libc.madvise.argtypes = [c_void_p, c_size_t, c_int]


def _map(num_bytes: int, flags: int, descriptor: int) -> int:
    """Return the address of a new mapping."""
    address = _libc.mmap(None, num_bytes, READ_WRITE, flags, descriptor, 0)
    if address == FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap of {num_bytes} bytes failed: {os.strerror(number)}")
    return address


def map_memfd(num_bytes: int, *, huge: bool = False) -> int:
    """Return the address of a shared mapping of a new memfd, like the regions of the engine.

    Raises:
        OSError: There is no memory, or `huge` asks for huge pages and none is reserved.
    """
    descriptor = os.memfd_create("gpu_check", MEMFD_HUGE_2_MIB if huge else 0)
    try:
        os.ftruncate(descriptor, num_bytes)
        return _map(num_bytes, SHARED, descriptor)
    finally:
        os.close(descriptor)


def map_anonymous(num_bytes: int, *, huge: bool = False) -> int:
    """Return the address of private memory; `huge` asks for transparent huge pages."""
    address = _map(num_bytes, PRIVATE | ANONYMOUS, -1)
    if huge:
        _libc.madvise(address, num_bytes, HUGE_PAGES)
    return address


def unmap(address: int, num_bytes: int) -> None:
    """Remove a mapping."""
    _libc.munmap(address, num_bytes)


def touch(address: int, num_bytes: int) -> None:
    """Write to every byte, so that every page exists."""
    ctypes.memset(address, 1, num_bytes)


@dataclass(frozen=True)
class Region:
    """Pinned host memory.

    Args:
        host: Address at which the CPU reads and writes.
        device: Address at which the GPU reads and writes.
        num_bytes: Size in bytes.
    """

    host: int
    device: int
    num_bytes: int


def registered(device: Device, num_bytes: int) -> Region:
    """Return a new registered memfd mapping, all of whose pages exist."""
    host = map_memfd(num_bytes)
    touch(host, num_bytes)
    device.register(host, num_bytes)
    return Region(host, device.address_of(host), num_bytes)


class Word:
    """A 32-bit word with its own cache line, which CPU and GPU share.

    Args:
        host: Address at which the CPU reads and writes.
        device: Address at which the GPU reads and writes.
    """

    def __init__(self, host: int, device: int) -> None:
        self.host = host
        self.device = device
        self.cell = c_uint32.from_address(host)


def words(device: Device, count: int) -> list[Word]:
    """Return `count` new words in registered memory, one after another, with the value zero."""
    region = registered(device, max(count * CACHE_LINE, 4096))
    ctypes.memset(region.host, 0, region.num_bytes)
    places = range(0, count * CACHE_LINE, CACHE_LINE)
    return [Word(region.host + place, region.device + place) for place in places]
