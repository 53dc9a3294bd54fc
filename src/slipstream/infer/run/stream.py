"""Preload: the next inputs are decoded and laid out while the current one runs.

Threads do whatever can be done: run what is ready, as long as fewer run than may, else make the
next item ready in a buffer that is free. So a core is never idle while there is something to do,
and one thread that decodes beside one that runs is only what happens when one run has all cores.
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
    """One item of a stream failed; the reason is the cause.

    Args:
        index: its number, from 0.
        reason: what was raised.
    """

    def __init__(self, index: int, reason: BaseException) -> None:
        super().__init__(f"item {index}: {reason}")
        self.index = index
        self.__cause__ = reason


@dataclass(frozen=True, kw_only=True)
class Stages(Generic[Buffer]):
    """What is done with each item; all of it by any thread.

    Args:
        buffer: makes a buffer, which is used again and again.
        keep: the item, with a copy of what may change once the next one is asked for.
        prepare: fills one from an item; what it returns is run.
        run: what takes the time; its result may hold nothing of the buffer.
    """

    buffer: Callable[[], Buffer]
    keep: Callable[[Any], Any]
    prepare: Callable[[Any, Buffer], Any]
    run: Callable[[Any], Any]


def serial(stages: Stages[Any], items: Iterable[Any], errors: Errors) -> Iterator[Any]:
    """Results in order, one item after another in the caller's thread."""
    buffer = stages.buffer()
    for index, item in enumerate(items):
        result = _attempt(index, lambda item=item: stages.run(stages.prepare(item, buffer)))
        yield _given(result, errors)


def preloaded(
    stages: Stages[Any],
    items: Iterable[Any],
    errors: Errors,
    *,
    threads: int,
    runs: int,
    depth: int,
) -> Iterator[Any]:
    """Results in order, with up to `depth` items on their way.

    Args:
        stages: what is done.
        items: taken one at a time, by threads of ours, and never more than `depth` ahead.
        errors: "raise" ends at the first item that fails, "yield" gives its ItemError and goes on.
            What `items` itself raises is raised as it is, after the results before it.
        threads: 1 or more.
        runs: that may be under way at a time, 1 or more.
        depth: 1 or more.

    Closing the iterator waits for what is being done, an item that is waited for included.
    """
    team = _Team(stages, iter(items), runs, depth)
    workers = [
        threading.Thread(target=team.work, name=f"slipstream-stream-{number}", daemon=True)
        for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    try:
        while (result := team.next_result()) is not END:
            yield _given(result, errors)
    finally:
        team.close()
        for worker in workers:
            worker.join()


def _attempt(index: int, work: Callable[[], Any]) -> Any:
    """What `work` returns, or the ItemError of what it raises."""
    try:
        return work()
    except BaseException as error:  # noqa: BLE001  # of engines, decoders, the caller's code
        return ItemError(index, error)


def _given(result: Any, errors: Errors) -> Any:
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
class _Team(Generic[Buffer]):
    """What the threads share. Whoever reads or writes a field holds `changed`."""

    stages: Stages[Buffer]
    items: Iterator[Any]
    runs: int
    depth: int
    changed: threading.Condition = field(default_factory=threading.Condition)
    free: list[Buffer] = field(default_factory=list[Buffer])
    ready: deque[_Ready] = field(default_factory=deque[_Ready])
    results: dict[int, Any] = field(default_factory=dict[int, Any])
    running: int = 0
    taken: int = 0  # items
    given: int = 0  # results
    is_taking: bool = False  # a thread waits for the next item
    is_over: bool = False  # there are no more items
    failure: BaseException | None = None  # of the items
    is_closed: bool = False

    # ---- the caller ------------------------------------------------------------------------

    def next_result(self) -> Any:
        """The result of the next item, an ItemError in its place, or END."""
        with self.changed:
            self.changed.wait_for(lambda: self.given in self.results or self._is_done())
            if self.given not in self.results:
                if self.failure is not None:
                    raise self.failure
                return END
            result = self.results.pop(self.given)
            self.given += 1
            self.changed.notify_all()
            return result

    def close(self) -> None:
        """Let the threads end."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()

    def _is_done(self) -> bool:
        return self.is_over and self.given == self.taken

    # ---- the threads -----------------------------------------------------------------------

    def work(self) -> None:
        """Do what there is to do until there is no more."""
        while (job := self._next_job()) is not None:
            job()

    def _next_job(self) -> Callable[[], None] | None:
        with self.changed:
            while not self.is_closed:
                if self.ready and self.running < self.runs:
                    self.running += 1
                    ready = self.ready.popleft()
                    return lambda: self._run(ready)
                if self._may_take():
                    self.is_taking = True
                    return self._take
                if self.is_over and self.given == self.taken:
                    return None
                self.changed.wait()
        return None

    def _may_take(self) -> bool:
        return not (self.is_taking or self.is_over) and self.taken - self.given < self.depth

    def _take(self) -> None:
        """Fetch an item and make it ready."""
        try:
            item = next(self.items)
        except BaseException as error:  # noqa: BLE001  # it is raised where results are given
            with self.changed:
                self.is_taking, self.is_over = False, True
                self.failure = None if isinstance(error, StopIteration) else error
                self.changed.notify_all()
            return
        kept = _attempt(self.taken, lambda: self.stages.keep(item))  # nobody else takes meanwhile
        with self.changed:
            index, self.taken = self.taken, self.taken + 1
            self.is_taking = False
            buffer = self.free.pop() if self.free else None
            self.changed.notify_all()
        self._prepare(index, kept, buffer)

    def _prepare(self, index: int, item: Any, buffer: Buffer | None) -> None:
        made: Any = _attempt(index, self.stages.buffer) if buffer is None else buffer
        failed = next((each for each in (item, made) if isinstance(each, ItemError)), None)
        if failed is not None:
            self._finish(index, buffer, failed)
            return
        inputs = _attempt(index, lambda: self.stages.prepare(item, made))
        if isinstance(inputs, ItemError):
            self._finish(index, made, inputs)
            return
        with self.changed:
            self.ready.append(_Ready(index, made, inputs))
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
