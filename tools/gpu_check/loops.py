"""Python bindings of the C++ loops in host_loops.cc, which run on the CPU without the GIL."""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_uint32, c_void_p
from dataclasses import dataclass
from pathlib import Path

from .host_memory import Word

SECOND = 1_000_000_000


class _RelayJob(ctypes.Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("landed", "passed", "sent", "source", "target")],
        *[(name, c_int64) for name in ("slot_bytes", "slots", "chunks", "threads", "limit")],
    ]


@dataclass(frozen=True)
class Ring:
    """A ring of slots in host memory, through which chunks go from the GPU and back to it.

    The CPU passes each chunk on: it sets a flag and, if there is a second ring, copies the chunk.
    Each slot has three words, which serve as flags. The words count the chunks in the slot.

    Args:
        landed: One word per slot; the GPU writes it when a chunk has arrived at the host.
        passed: One word per slot; the CPU writes it when it has passed on the chunk.
        sent: One word per slot; the GPU writes it when the chunk has left the host.
        source: Host address of the slots where chunks arrive.
        target: Host address of the slots that chunks leave; `source` if nothing is copied.
        slot_bytes: Size of a slot in bytes.
    """

    landed: list[Word]
    passed: list[Word]
    sent: list[Word]
    source: int
    target: int
    slot_bytes: int


class Loops:
    """The functions of host_loops.cc; a negative result means that a time limit was reached.

    Args:
        library: Path of the shared library, from `build_loops`.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        numbers = {
            "await_word": [c_void_p, c_uint32, c_int64],
            "release_and_await": [c_void_p, c_uint32, c_void_p, c_uint32, c_int64, c_int64],
            "wrong_words": [c_void_p, c_int64, c_uint32],
            "check_burst": [
                *[c_void_p, c_uint32, c_int64, c_void_p],
                *[c_int64, c_int64, c_uint32, c_int64],
            ],
            "relay": [c_void_p],
        }
        for name, arguments in numbers.items():
            function = getattr(self._library, name)
            function.argtypes = arguments
            function.restype = c_int64
        self._library.release_after.argtypes = [c_void_p, c_uint32, c_int64]
        self._library.release_after.restype = None
        self.wrong_words = self._library.wrong_words
        self.check_burst = self._library.check_burst
        # A host function for cuLaunchHostFunc, which adds one to the word that it gets.
        self.raise_word = ctypes.cast(self._library.raise_word, c_void_p).value or 0

    def await_word(self, word: Word, value: int, limit: int = SECOND) -> int:
        """Wait until a word is `value` or higher; return the nanoseconds of the wait."""
        return self._library.await_word(word.host, value, limit)

    def release_and_await(
        self, gate: Word, ready: Word, value: int, *, delay: int = 0, limit: int = SECOND
    ) -> int:
        """Return the nanoseconds from storing `value` to `gate` until `ready` holds the value, too.

        Args:
            gate: Word that the GPU waits for.
            ready: Word that the GPU writes.
            value: Value to store to `gate`, and to wait for in `ready`.
            delay: Nanoseconds to wait before the store (default 0).
            limit: Nanoseconds to wait after the store (default: one second).
        """
        return self._library.release_and_await(gate.host, value, ready.host, value, delay, limit)

    def release_after(self, gate: Word, value: int, delay: int) -> None:
        """Store a value to a word after `delay` nanoseconds, from a thread that never blocks."""
        self._library.release_after(gate.host, value, delay)

    def relay(self, ring: Ring, chunks: int, threads: int, limit: int = 10 * SECOND) -> int:
        """Do the CPU's work for all chunks of a ring; return the time in nanoseconds."""
        job = _RelayJob(
            *[ring.landed[0].host, ring.passed[0].host, ring.sent[0].host],
            *[ring.source, ring.target, ring.slot_bytes],
            *[len(ring.landed), chunks, threads, limit],
        )
        return self._library.relay(ctypes.byref(job))
