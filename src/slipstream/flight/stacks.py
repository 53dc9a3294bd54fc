"""Stacks of threads and exceptions, as flight records contain them."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterable
from types import FrameType, TracebackType

from slipstream import errors
from slipstream.flight.record import RaisedError, StackLine, ThreadStack

_MOST_LINES = 40
_MOST_THREADS = 32
_MOST_CHARACTERS = 160
_MOST_MESSAGE = 4000

# Errors of communication whose cause lies on another rank. The names of PyTorch's classes are
# compared as texts, so that PyTorch need not be imported.
_COMMUNICATION = (errors.PeerError, errors.MismatchError)
_COMMUNICATION_NAMES = ("DistBackendError", "DistNetworkError", "DistStoreError")


def stacks_of_threads() -> tuple[ThreadStack, ...]:
    """Return the stacks of this process's Python threads, the main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sorted(
        sys._current_frames().items(),  # pyright: ignore[reportPrivateUsage]
        key=lambda item: item[0] != main,
    )
    return tuple(
        ThreadStack(name=names.get(ident, f"thread {ident}"), lines=_lines_of_frame(frame))
        for ident, frame in frames[:_MOST_THREADS]
    )


def error_in_words(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> RaisedError:
    """Return an exception with its traceback and the exceptions that led to it.

    Args:
        kind: Class of the exception.
        error: The exception, or None if the interpreter does not have it.
        trace: Traceback of the exception.
    """
    chain = _chain(error)
    return RaisedError(
        type=_name_of(kind),
        message=str(error)[:_MOST_MESSAGE] if error is not None else "",
        is_communication=any(_is_communication(each) for each in chain),
        lines=_lines(traceback.walk_tb(trace)),
        causes=tuple(f"{_name_of(type(each))}: {str(each)[:_MOST_MESSAGE]}" for each in chain[1:]),
    )


def _is_communication(error: BaseException) -> bool:
    return isinstance(error, _COMMUNICATION) or type(error).__name__ in _COMMUNICATION_NAMES


def _chain(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain and len(chain) < 10:
        chain.append(error)
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    return chain


def _name_of(kind: type[BaseException]) -> str:
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _lines_of_frame(frame: FrameType) -> tuple[StackLine, ...]:
    return tuple(reversed(_lines(traceback.walk_stack(frame), innermost_first=True)))


def _lines(
    frames: Iterable[tuple[FrameType, int]], *, innermost_first: bool = False
) -> tuple[StackLine, ...]:
    listed = list(frames)
    listed = listed[:_MOST_LINES] if innermost_first else listed[-_MOST_LINES:]
    return tuple(_line(frame, number) for frame, number in listed)


def _line(frame: FrameType, number: int) -> StackLine:
    file = frame.f_code.co_filename
    code = linecache.getline(file, number, frame.f_globals).strip()
    return StackLine(
        file=file,
        line=number,
        function=frame.f_code.co_name,
        code=code[:_MOST_CHARACTERS],
        is_library=_is_library(file),
    )


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = {own, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
    return tuple(folder + os.sep for folder in folders)


_LIBRARIES = _library_folders()


def _is_library(file: str) -> bool:
    if file.startswith("<"):
        return True
    path = os.path.abspath(file)
    parts = ("site-packages", "dist-packages")
    return path.startswith(_LIBRARIES) or any(f"{os.sep}{part}{os.sep}" in path for part in parts)
