"""Futures whose callbacks run one after the other, in the order of the program."""

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slipstream.torch.callbacks import (  # noqa: E402
    Callbacks,
    FutureFailure,
    OrderedFuture,
    in_callback,
)


@pytest.fixture
def callbacks() -> Iterator[Callbacks]:
    """Yield the callbacks, once they have a thread."""
    made = Callbacks()
    yield made
    made.close()


def test_calls_run_in_their_order_in_one_other_thread(callbacks: Callbacks) -> None:
    seen: list[Any] = []
    for number in range(5):
        callbacks.run(lambda number=number: seen.append((number, in_callback())))
    callbacks.run(lambda: seen.append(threading.current_thread().name))
    callbacks.close()
    assert seen == [(number, True) for number in range(5)] + ["slipstream-callbacks"]
    callbacks.run(lambda: seen.append((5, in_callback())))
    assert seen[-1] == (5, False)
    callbacks.close()


def test_who_closes_from_a_callback_does_not_wait_for_itself(callbacks: Callbacks) -> None:
    done = threading.Event()
    callbacks.run(lambda: (callbacks.close(), done.set()))
    assert done.wait(30.0)


def test_callbacks_follow_the_order_of_then_and_not_of_the_ends(callbacks: Callbacks) -> None:
    first, second = OrderedFuture(callbacks), OrderedFuture(callbacks)
    seen: list[int] = []
    chained = [
        each.then(lambda done: seen.append(done.value()) or done) for each in (first, second)
    ]
    second.set_result(2)
    assert not chained[1].done()
    first.set_result(1)
    chained[1].wait()
    assert seen == [1, 2]


def test_what_a_callback_chains_is_run_at_once(callbacks: Callbacks) -> None:
    future = OrderedFuture(callbacks)
    inner = OrderedFuture(callbacks)
    inner.set_result(3)
    outer = future.then(lambda _: inner.then(lambda done: done.value() + 1).wait())
    future.set_result(0)
    assert outer.wait() == 4


def test_errors_are_passed_on_as_pytorchs_kind(callbacks: Callbacks) -> None:
    future = OrderedFuture(callbacks)
    own = future.then(lambda _: _raise(RuntimeError("mine")))
    other = future.then(lambda _: _raise(KeyError("x")))
    late = own.then(lambda done: done.wait())
    future.set_result(0)
    with pytest.raises(RuntimeError, match=r"^mine$"):
        own.wait()
    with pytest.raises(RuntimeError, match=r"^a callback failed: KeyError: 'x'$") as caught:
        other.wait()
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(RuntimeError, match="mine"):
        late.wait()


def test_without_a_thread_callbacks_run_where_the_future_is_completed() -> None:
    future = OrderedFuture(None)
    where = future.then(lambda done: (done.value(), threading.get_ident()))
    future.set_result(1)
    assert where.wait() == (1, threading.get_ident())


def test_a_failure_is_raised_by_who_looks_into_it_and_shows_its_error() -> None:
    failure = FutureFailure(ValueError("why"))
    assert repr(failure) == "ValueError: why"
    with pytest.raises(ValueError, match="why"):
        pickle.dumps(failure)


def _raise(error: Exception) -> None:
    raise error
