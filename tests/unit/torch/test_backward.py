"""What is waited for at the end of a backward pass, and where PyTorch finds tensors."""

import _thread
import functools
import gc
import operator
import os
import signal
import threading
import weakref
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import torch._jit_internal as of_torch  # noqa: E402

from slipstream.torch import process_group  # noqa: E402, F401  it sets PyTorch's extractor
from slipstream.torch.backward import wait_at_end  # noqa: E402


class Waited(torch.futures.Future):
    """A future that is complete, and that tells when it is waited for.

    Args:
        seen: the list that gets its name then.
        name: the word for it.
        error: the error that it raises, or None.
    """

    def __init__(self, seen: list[str], name: str, error: BaseException | None = None) -> None:
        super().__init__()
        self._seen, self._name, self._error = seen, name, error
        self.set_result(None)

    def wait(self) -> None:
        self._seen.append(self._name)
        if self._error is not None:
            raise self._error


def run_backward(*calls: Callable[[], object]) -> None:
    """Run a backward pass that calls these functions."""
    with torch.enable_grad():  # a pass within another one has it off
        value = torch.ones(1, requires_grad=True) * 1
        for call in reversed(calls):
            value = value * 1
            value.register_hook(lambda _, call=call: call() and None)
        value.sum().backward()


def test_futures_are_waited_for_at_the_end_of_the_pass_in_their_order() -> None:
    seen: list[str] = []
    run_backward(
        lambda: wait_at_end(Waited(seen, "first")),
        lambda: seen.append("before"),
        lambda: wait_at_end(Waited(seen, "second")),
    )
    assert seen == ["before", "first", "second"]


def test_outside_of_a_pass_nothing_is_waited_for() -> None:
    seen: list[str] = []
    wait_at_end(Waited(seen, "outside"))
    run_backward(lambda: wait_at_end(Waited(seen, "inside")))
    assert seen == ["inside"]


def test_an_inner_pass_waits_for_nothing() -> None:
    seen: list[str] = []
    run_backward(
        lambda: wait_at_end(Waited(seen, "outer")),
        lambda: run_backward(lambda: wait_at_end(Waited(seen, "inner"))),
        lambda: seen.append("after"),
    )
    assert seen == ["after", "outer"]


def test_the_error_of_a_future_arrives_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        run_backward(lambda: wait_at_end(Waited([], "", KeyError("mine"))))


def test_an_interrupt_ends_the_wait_for_a_future_that_is_never_complete() -> None:
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_backward(lambda: wait_at_end(torch.futures.Future()), timer.start)


def test_a_future_that_is_complete_late_is_waited_for() -> None:
    futures = [torch.futures.Future() for _ in range(2)]
    timers = [threading.Timer(0.1 / n, futures[n - 1].set_result, ("",)) for n in (1, 2)]
    run_backward(
        *(functools.partial(wait_at_end, each) for each in futures),
        timers[0].start,
        timers[1].start,
    )
    assert all(future.done() for future in futures)


def test_a_pass_that_fails_waits_for_nothing_and_keeps_nothing() -> None:
    seen: list[str] = []
    futures = [Waited(seen, "of the pass that failed")]
    alive = weakref.ref(futures[0])
    with pytest.raises(ZeroDivisionError):
        run_backward(lambda: wait_at_end(futures.pop()), lambda: 1 / 0)
    run_backward(lambda: wait_at_end(Waited(seen, "of the next")))
    gc.collect()
    assert seen == ["of the next"]
    assert alive() is None


def test_pytorch_finds_the_tensors_of_every_value() -> None:
    one, two = torch.ones(1), torch.nn.Parameter(torch.ones(2))
    for value, expected in (
        ([one, two], [one, two]),
        ((two, one, two), [two, one, two]),
        ([], []),
        (one, [one]),
        ([one, [two]], [one, two]),
        ({"a": two, "b": 3, "c": (one,)}, [two, one]),
        ([one, "text", None], [one]),
    ):
        found = of_torch._extract_tensors(value)
        assert len(found) == len(expected)
        assert all(a is b for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", [list, tuple])
def test_an_interrupt_waits_until_pytorch_has_the_tensors(kind: type) -> None:
    tensors = kind([torch.ones(1), torch.ones(2)])
    extract = functools.partial(of_torch._extract_tensors, tensors)
    done: list[object] = []
    in_c = operator.methodcaller("__call__")  # Python code between the two would be interrupted
    with pytest.raises(KeyboardInterrupt):
        done.extend(map(in_c, (_thread.interrupt_main, extract)))
    assert done[1:] == [list(tensors)]
