"""The CPU's loops (host_loops.cc) for Python; none of them holds the GIL."""

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
    """Slots that the CPU passes chunks through.

    Args:
        landed: One word a slot, written by the GPU when a chunk has come to the host.
        passed: One word a slot, written by the CPU when it has passed the chunk on.
        sent: One word a slot, written by the GPU when the chunk has left the host.
        source: Host address of the slots where chunks land.
        target: Host address of the slots that chunks leave from; `source` if nothing is copied.
        slot_bytes: Size of a slot in bytes.
    """

    landed: list[Word]
    passed: list[Word]
    sent: list[Word]
    source: int
    target: int
    slot_bytes: int


class Loops:
    """The functions of the library; a result below zero says that nothing came in time.

    Args:
        library: File that `build_loops` made.
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
        # A host function for cuLaunchHostFunc: it adds one to the word it is given.
        self.raise_word = ctypes.cast(self._library.raise_word, c_void_p).value or 0

    def await_word(self, word: Word, value: int, limit: int = SECOND) -> int:
        """Return the nanoseconds until a word is `value` or later."""
        return self._library.await_word(word.host, value, limit)

    def release_and_await(
        self, gate: Word, ready: Word, value: int, *, delay: int = 0, limit: int = SECOND
    ) -> int:
        """Return the nanoseconds from storing `value` to `gate` until `ready` holds it too.

        Args:
            gate: Word that the GPU waits for.
            ready: Word that the GPU writes.
            value: Value of both.
            delay: Nanoseconds to wait before the store. Default: 0.
            limit: Nanoseconds to wait after the store. Default: a second.
        """
        return self._library.release_and_await(gate.host, value, ready.host, value, delay, limit)

    def release_after(self, gate: Word, value: int, delay: int) -> None:
        """Store to a word in `delay` nanoseconds, on a thread that nothing can hold up."""
        self._library.release_after(gate.host, value, delay)

    def relay(self, ring: Ring, chunks: int, threads: int, limit: int = 10 * SECOND) -> int:
        """Pass chunks through a ring of slots; return the nanoseconds that it took."""
        job = _RelayJob(
            *[ring.landed[0].host, ring.passed[0].host, ring.sent[0].host],
            *[ring.source, ring.target, ring.slot_bytes],
            *[len(ring.landed), chunks, threads, limit],
        )
        return self._library.relay(ctypes.byref(job))
