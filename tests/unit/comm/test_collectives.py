"""What collectives refuse and where results go, in a world of one; messages between two engines."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from slipstream import _core, comm
from slipstream.errors import AbortedError, PeerTimeoutError, UsageError

Call = Callable[[comm.Group], Any]


@pytest.fixture(scope="module")
def alone() -> Iterator[comm.Group]:
    """Yield the world of this process."""
    yield comm.init()
    comm.shutdown()


@pytest.fixture
def groups(pair: list[_core.Runtime]) -> list[comm.Group]:
    """Return one group of two ranks, as each of them sees it."""
    return [comm.Group(runtime.group("two", [0, 1])) for runtime in pair]


ROW = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.allreduce(ROW.copy(), "mean"), "op is 'mean'; allowed: sum, .*bxor"),
        (
            lambda g: g.allreduce(ROW.copy(), wait=1),
            "unknown keywords: wait; allowed: async_op, name,",
        ),
        (
            lambda g: g.allreduce(np.arange(3), residual=np.zeros(3, np.float32)),
            "residual= needs an array of float32, but the array is int64",
        ),
        (
            lambda g: g.allreduce(ROW.copy(), residual=np.zeros(5, np.float32)),
            "residual: the output has 5 elements of float32; allowed: 6",
        ),
        (lambda g: g.allreduce(b"read only"), "allreduce: the output is read-only"),
        (lambda g: g.broadcast(ROW.copy(), 1), "broadcast: root is 1; allowed: 0 to 0"),
        (lambda g: g.broadcast(ROW.copy(), -1), "broadcast: root is -1; allowed: 0 to 0"),
        (lambda g: g.broadcast(b"read only"), "broadcast: the output is read-only"),
        (lambda g: g.reduce(b"read only"), "reduce: the output is read-only"),
        (lambda g: g.recv(b"read only"), "recv: the output is read-only"),
        (lambda g: g.scatter(ROW, b"read only"), "scatter: the output is read-only"),
        (lambda g: g.scatter(None, ROW.copy()), "scatter: the root passed None"),
        (lambda g: g.scatter(np.zeros(5, np.float32), ROW.copy()), "has 5 elements; allowed: 6 of"),
        (lambda g: g.scatter(np.zeros(6), ROW.copy()), "allowed: 6 of the type of out"),
        (lambda g: g.reduce_scatter(np.float32(1)), r"reduce_scatter: .* the shape \(\)"),
        (lambda g: g.all_to_all(np.float32(1)), r"all_to_all: .* the shape \(\)"),
        (lambda g: g.all_gather_v(ROW, [5]), r"has 6 elements; allowed: 5, the value of counts"),
        (
            lambda g: g.all_gather_v(ROW, [6, 0]),
            r"counts are \[6, 0\]; allowed: one count for each",
        ),
        (lambda g: g.all_to_all_v(ROW, [-1], [6]), r"all_to_all_v: counts are \[-1\]"),
        (lambda g: g.all_to_all_v(ROW, [6], [-1]), r"all_to_all_v: counts are \[-1\]"),
        (lambda g: g.all_to_all_v(ROW, [5], [6]), "has 6 elements; allowed: 5, the sum of send_"),
    ],
)
def test_what_a_collective_cannot_do_is_said(alone: comm.Group, call: Call, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(alone)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda g, **o: g.reduce_scatter(ROW.reshape(2, 3), **o), (2, 3)),
        (lambda g, **o: g.all_gather(ROW, **o), (1, 6)),
        (lambda g, **o: g.all_gather_v(ROW, [6], **o), (6,)),
        (lambda g, **o: g.gather(ROW, **o), (1, 6)),
        (lambda g, **o: g.all_to_all(ROW.reshape(3, 2), **o), (3, 2)),
        (lambda g, **o: g.all_to_all_v(ROW, [6], [6], **o), (6,)),
        (lambda g, **o: g.allreduce(ROW.copy(), **o), (6,)),
        (lambda g, **o: g.reduce(ROW.copy(), **o), (6,)),
    ],
)
def test_a_result_is_a_new_array_or_what_out_says(
    alone: comm.Group, call: Callable[..., Any], shape: tuple[int, ...]
) -> None:
    made = call(alone)
    assert (made.shape, made.dtype) == (shape, np.float32)
    out = np.zeros(shape, np.float32)
    assert call(alone, out=out) is out
    assert np.array_equal(made.ravel(), ROW)
    assert np.array_equal(out.ravel(), ROW)


def test_empty_arrays_and_counts_of_zero_are_allowed(alone: comm.Group) -> None:
    empty = np.zeros(0, np.float32)
    assert alone.all_gather_v(empty, [0]).shape == (0,)
    assert alone.all_to_all_v(empty, [0], [0]).shape == (0,)
    assert alone.allreduce(empty) is empty


def test_in_place_and_out_of_place_reductions_write_where_they_say(alone: comm.Group) -> None:
    own, out = ROW.copy(), np.zeros(6, np.float32)
    assert alone.allreduce(own, "average") is own
    assert alone.reduce(own, out=out) is out
    assert alone.scatter(own, out) is out
    assert np.array_equal(own, ROW)
    assert np.array_equal(out, ROW)


def test_a_barrier_returns_nothing_at_once_or_by_its_handle(alone: comm.Group) -> None:
    assert alone.barrier() is None
    assert alone.barrier(async_op=True).wait() is None


def test_a_message_has_tag_0_and_comes_from_any_rank_by_default(groups: list[comm.Group]) -> None:
    got = [np.zeros(6, np.float32) for _ in range(3)]
    handles = [
        groups[1].recv(got[0], 0, 2**31 - 1, async_op=True),
        groups[1].recv(got[1], comm.ANY_RANK, 0, async_op=True),
        groups[1].recv(got[2], async_op=True),
    ]
    assert groups[0].send(ROW, 1) is ROW
    groups[0].send(ROW + 1, 1, tag=0)
    groups[0].send(ROW + 2, 1, 2**31 - 1)
    assert [handle.wait(10.0) is each for handle, each in zip(handles, got, strict=True)] == 3 * [
        True
    ]
    assert [each[0] for each in got] == [2, 0, 1]
    assert [handle.source() for handle in handles[1:]] == [0, 0]


def test_the_limit_of_an_operation_ends_it(groups: list[comm.Group]) -> None:
    late = groups[0].recv(np.zeros(6, np.float32), 1, name="late", timeout=0.05, async_op=True)
    with pytest.raises(PeerTimeoutError, match="late"):
        late.wait()
    assert late.done()


def test_an_operation_goes_on_when_waiting_for_it_has_ended(groups: list[comm.Group]) -> None:
    patient = groups[0].recv(np.zeros(6, np.float32), 1, 7, async_op=True)
    with pytest.raises(PeerTimeoutError):
        patient.wait(0.01)
    assert not patient.done()
    groups[1].send(ROW, 0, 7)
    assert np.array_equal(patient.wait(10.0), ROW)


def test_an_aborted_group_says_why_to_all_ranks(groups: list[comm.Group]) -> None:
    waiting = [group.recv(np.zeros(6, np.float32), async_op=True) for group in groups]
    groups[0].abort("the test says so")
    for handle in waiting:
        with pytest.raises(AbortedError, match="the test says so"):
            handle.wait(10.0)


def test_a_group_that_is_closed_ends_its_operations(groups: list[comm.Group]) -> None:
    waiting = groups[0].recv(np.zeros(6, np.float32), async_op=True)
    groups[0].close()
    with pytest.raises(AbortedError):
        waiting.wait(10.0)


def test_ranks_of_two_get_their_parts(groups: list[comm.Group]) -> None:
    assert [(group.rank, group.size, group.name) for group in groups] == [
        (0, 2, "two"),
        (1, 2, "two"),
    ]
    other = groups[1].gather(ROW, root=0, async_op=True)
    assert np.array_equal(groups[0].gather(ROW * 2), [ROW * 2, ROW])
    assert other.wait() is None
    out = np.zeros(3, np.float32)
    part = groups[1].scatter(None, out, async_op=True)
    groups[0].scatter(ROW, np.zeros(3, np.float32))
    assert part.wait() is out
    assert np.array_equal(out, ROW[3:])
    kept = ROW.copy()
    handle = groups[1].reduce(kept, async_op=True)
    assert np.array_equal(groups[0].reduce(ROW.copy()), 2 * ROW)
    assert handle.wait() is kept
    assert np.array_equal(kept, ROW)


@pytest.mark.parametrize("rows", [2, 4])
def test_parts_are_of_the_first_dimension(groups: list[comm.Group], rows: int) -> None:
    array = np.arange(rows * 3, dtype=np.int32).reshape(rows, 3)
    handle = groups[1].reduce_scatter(array, async_op=True)
    assert np.array_equal(groups[0].reduce_scatter(array), 2 * array[: rows // 2])
    assert np.array_equal(handle.wait(), 2 * array[rows // 2 :])
    with pytest.raises(UsageError, match="multiple of the 2 ranks"):
        groups[0].reduce_scatter(array[1:])
    with pytest.raises(UsageError, match="multiple of the 2 ranks"):
        groups[0].all_to_all(array[1:])
