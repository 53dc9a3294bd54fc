"""Preloading: threads prepare the next inputs while the model runs on earlier inputs.

Each thread takes the next job that can be done. If an input is prepared, and fewer threads than
allowed run the model, the thread runs the model on this input. Otherwise the thread draws the next
item and prepares the item in a free buffer. So no core is idle while there is work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from slipstream.errors import UsageError

Errors: TypeAlias = Literal["raise", "yield"]
Buffer = TypeVar("Buffer")


class ItemError(UsageError):
    """The failure of one item of a stream; `__cause__` is the exception that was raised.

    Args:
        index: Index of the item, from 0.
        reason: Exception that the work on the item raised.
    """

    def __init__(self, index: int, reason: BaseException) -> None:
        super().__init__(f"item {index}: {reason}")
        self.index = index
        self.__cause__ = reason


@dataclass(frozen=True, kw_only=True)
class Stages(Generic[Buffer]):
    """The functions that process each item of a stream. Any thread may call any function.

    Args:
        buffer: Function that makes a buffer for one item's inputs; buffers are reused.
        keep: Function that copies an item, because drawing the next item may change it.
        prepare: Function that fills a buffer from an item, and returns the inputs of `run`.
        run: Function that runs the model. The function's result must not refer to the buffer.
    """

    buffer: Callable[[], Buffer]
    keep: Callable[[Any], Any]
    prepare: Callable[[Any, Buffer], Any]
    run: Callable[[Any], Any]


def run_serially(stages: Stages[Any], items: Iterable[Any], errors: Errors) -> Iterator[Any]:
    """Yield the result of each item; the caller's thread processes one item after another."""
    buffer = stages.buffer()
    for index, item in enumerate(items):
        result = _attempt(index, lambda item=item: stages.run(stages.prepare(item, buffer)))
        yield _or_raise(result, errors)


def run_preloaded(
    stages: Stages[Any],
    items: Iterable[Any],
    errors: Errors,
    *,
    threads: int,
    runs: int,
    depth: int,
) -> Iterator[Any]:
    """Yield the results in the order of the items, with up to `depth` items in progress.

    When the iterator is closed, it waits for the work in progress, even for an item that is being
    drawn.

    Args:
        stages: Functions that process each item.
        items: Items, which the threads draw one at a time.
        errors: Reaction to an item that fails: "raise" raises an ItemError and ends; "yield"
            returns the ItemError and continues. An exception that `items` itself raises is raised
            unchanged, after the results of the earlier items.
        threads: Number of threads that process items, 1 or more.
        runs: Number of simultaneous runs, 1 or more.
        depth: Greatest number of items whose results are not yet returned, 1 or more.
    """
    pool = _StreamPool(stages, iter(items), runs, depth)
    workers = [
        threading.Thread(target=pool.work, name=f"slipstream-stream-{number}", daemon=True)
        for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    try:
        while (result := pool.next_result()) is not END:
            yield _or_raise(result, errors)
    finally:
        pool.close()
        for worker in workers:
            worker.join()


def _attempt(index: int, work: Callable[[], Any]) -> Any:
    """Return the result of `work`; if `work` raises an exception, return it as an ItemError."""
    try:
        return work()
    except BaseException as error:  # noqa: BLE001  # from engines, decoders or the caller's code
        return ItemError(index, error)


def _or_raise(result: Any, errors: Errors) -> Any:
    if errors == "raise" and isinstance(result, ItemError):
        raise result
    return result


END = object()


@dataclass(frozen=True)
class _Ready:
    index: int
    buffer: Any
    inputs: Any


@dataclass
class _StreamPool(Generic[Buffer]):
    """State that the threads of a stream share; the lock in `changed` protects every field."""

    stages: Stages[Buffer]
    items: Iterator[Any]
    runs: int
    depth: int
    changed: threading.Condition = field(default_factory=threading.Condition)
    free: list[Buffer] = field(default_factory=list[Buffer])
    ready: deque[_Ready] = field(default_factory=deque[_Ready])
    results: dict[int, Any] = field(default_factory=dict[int, Any])
    running: int = 0
    num_drawn: int = 0  # number of items that were drawn
    num_returned: int = 0  # number of results that the caller got
    is_drawing: bool = False  # whether a thread waits for the next item
    is_over: bool = False  # whether the iterable has ended
    failure: BaseException | None = None  # exception of the iterable
    is_closed: bool = False

    # ---- the caller ------------------------------------------------------------------------

    def next_result(self) -> Any:
        """Return the next item's result or ItemError, or END after the last item."""
        with self.changed:
            self.changed.wait_for(lambda: self.num_returned in self.results or self._is_done())
            if self.num_returned not in self.results:
                if self.failure is not None:
                    raise self.failure
                return END
            result = self.results.pop(self.num_returned)
            self.num_returned += 1
            self.changed.notify_all()
            return result

    def close(self) -> None:
        """Tell the threads of the stream to end."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()

    def _is_done(self) -> bool:
        return self.is_over and self.num_returned == self.num_drawn

    # ---- the threads -----------------------------------------------------------------------

    def work(self) -> None:
        """Do jobs of the stream until no job is left."""
        while (job := self._next_job()) is not None:
            job()

    def _next_job(self) -> Callable[[], None] | None:
        with self.changed:
            while not self.is_closed:
                if self.ready and self.running < self.runs:
                    self.running += 1
                    ready = self.ready.popleft()
                    return lambda: self._run(ready)
                if self._may_draw():
                    self.is_drawing = True
                    return self._draw
                if self.is_over and self.num_returned == self.num_drawn:
                    return None
                self.changed.wait()
        return None

    def _may_draw(self) -> bool:
        return (
            not (self.is_drawing or self.is_over)
            and self.num_drawn - self.num_returned < self.depth
        )

    def _draw(self) -> None:
        """Draw the next item of the stream and prepare it."""
        try:
            item = next(self.items)
        except BaseException as error:  # noqa: BLE001  # the caller gets it after the results
            with self.changed:
                self.is_drawing, self.is_over = False, True
                self.failure = None if isinstance(error, StopIteration) else error
                self.changed.notify_all()
            return
        # No other thread draws meanwhile, so `num_drawn` is the index of this item.
        copy = _attempt(self.num_drawn, lambda: self.stages.keep(item))
        with self.changed:
            index, self.num_drawn = self.num_drawn, self.num_drawn + 1
            self.is_drawing = False
            buffer = self.free.pop() if self.free else None
            self.changed.notify_all()
        self._prepare(index, copy, buffer)

    def _prepare(self, index: int, item: Any, buffer: Buffer | None) -> None:
        filled: Any = _attempt(index, self.stages.buffer) if buffer is None else buffer
        failed = next((value for value in (item, filled) if isinstance(value, ItemError)), None)
        if failed is not None:
            self._finish(index, buffer, failed)
            return
        inputs = _attempt(index, lambda: self.stages.prepare(item, filled))
        if isinstance(inputs, ItemError):
            self._finish(index, filled, inputs)
            return
        with self.changed:
            self.ready.append(_Ready(index, filled, inputs))
            self.changed.notify_all()

    def _run(self, ready: _Ready) -> None:
        result = _attempt(ready.index, lambda: self.stages.run(ready.inputs))
        with self.changed:
            self.running -= 1
        self._finish(ready.index, ready.buffer, result)

    def _finish(self, index: int, buffer: Buffer | None, result: Any) -> None:
        with self.changed:
            if buffer is not None:
                self.free.append(buffer)
            self.results[index] = result
            self.changed.notify_all()
