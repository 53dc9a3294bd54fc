"""Two ranks of one process that submit tensors to the queues of a process set."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slipstream import _core, comm  # noqa: E402
from slipstream.horovod.common.exceptions import HorovodInternalError  # noqa: E402
from slipstream.horovod.queue import TensorQueue  # noqa: E402
from slipstream.horovod.request import Request  # noqa: E402
from slipstream.horovod.timeline import Timeline  # noqa: E402
from slipstream.horovod.torch.arrays import TorchArrays  # noqa: E402
from slipstream.settings import HorovodSettings  # noqa: E402

SETTINGS = HorovodSettings.from_environment({})


@pytest.fixture
def queues(pair: list[_core.Runtime]) -> Iterator[list[TensorQueue]]:
    """Yield the queues of both ranks."""
    groups = [comm.Group(runtime.group("two", [0, 1])) for runtime in pair]
    made = [
        TensorQueue(group, SETTINGS, TorchArrays(), Timeline(rank))
        for rank, group in enumerate(groups)
    ]
    yield made
    for each in made:
        each.close()


def run(queues: list[TensorQueue], *requests: Request) -> list[Any]:
    """Submit one request on each rank, and return their results."""
    handles = [queue.submit([each])[0] for queue, each in zip(queues, requests, strict=True)]
    return [handle.wait() for handle in handles]


def tensor(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    ("op", "prescale", "postscale", "dtype", "wanted"),
    [
        ("sum", 1.0, 1.0, torch.float32, [11, -22]),
        ("sum", 2.0, 1.0, torch.float32, [22, -44]),
        ("sum", 1.0, 3.0, torch.float32, [33, -66]),
        ("average", 1.0, 1.0, torch.float32, [5.5, -11]),
        ("average", 2.0, 0.5, torch.float32, [5.5, -11]),
        ("average", 1.0, 1.0, torch.int32, [5, -11]),
        ("average", 1.0, 3.0, torch.int32, [16, -33]),  # 11 * 1.5, towards zero
        ("sum", 0.5, 1.0, torch.int32, [5, -11]),  # 0.5 and 5, -1 and -10: each towards zero
        ("min", 1.0, 1.0, torch.float32, [1, -20]),
        ("max", 1.0, 1.0, torch.int32, [10, -2]),
        ("product", 1.0, 1.0, torch.float32, [10, 40]),
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_reductions_are_scaled_before_and_after(
    queues: list[TensorQueue],
    op: str,
    prescale: float,
    postscale: float,
    dtype: torch.dtype,
    wanted: list[float],
    in_place: bool,
) -> None:
    arrays = [tensor(1, -2, dtype=dtype), tensor(10, -20, dtype=dtype)]
    requests = [
        Request(
            kind="allreduce",
            name="a",
            array=each,
            output=each if in_place else None,
            op=op,
            prescale=prescale,
            postscale=postscale,
        )
        for each in arrays
    ]
    results = run(queues, *requests)
    assert [each.tolist() for each in results] == [wanted, wanted]
    assert [result is each for result, each in zip(results, arrays, strict=True)] == [in_place] * 2
    assert (arrays[0].tolist() == [1, -2]) is not in_place


def test_tensors_that_are_reduced_together_come_back_apart(queues: list[TensorQueue]) -> None:
    handles = []
    for rank, queue in enumerate(queues):
        requests = [
            Request(kind="allreduce", name=f"t{n}", array=torch.full((n, 2), n + 10.0 * rank))
            for n in range(4)
        ]
        handles.append(queue.submit(requests, together=True))
    for of_rank in handles:
        for n, handle in enumerate(of_rank):
            assert torch.equal(handle.wait(), torch.full((n, 2), 2 * n + 10.0))


def test_rows_of_ranks_may_differ_where_they_are_gathered_or_exchanged(
    queues: list[TensorQueue],
) -> None:
    arrays = [torch.arange(2.0).reshape(1, 2), torch.arange(6.0).reshape(3, 2) + 10]
    gathered = run(queues, *(Request(kind="all_gather", name="g", array=each) for each in arrays))
    for each in gathered:
        assert torch.equal(each, torch.cat(arrays))
    splits = [(0, 1), (2, 1)]
    exchanged = run(
        queues,
        *(
            Request(kind="all_to_all", name="e", array=each, splits=split)
            for each, split in zip(arrays, splits, strict=True)
        ),
    )
    assert exchanged[0][0].tolist() == [[10, 11], [12, 13]]
    assert exchanged[0][1] == [0, 2]
    assert exchanged[1][0].tolist() == [[0, 1], [14, 15]]
    assert exchanged[1][1] == [1, 1]


@pytest.mark.parametrize(
    ("rows", "parts"), [(4, ([0, 1], [2, 3])), (5, ([0, 1, 2], [3, 4])), (1, ([0], []))]
)
def test_the_first_ranks_get_a_row_more_of_what_is_scattered(
    queues: list[TensorQueue], rows: int, parts: tuple[list[int], list[int]]
) -> None:
    array = torch.arange(rows, dtype=torch.int32)
    results = run(
        queues,
        *(
            Request(kind="reduce_scatter", name="r", array=array, op="average", postscale=each)
            for each in (1.0, 1.0)
        ),
    )
    assert [each.tolist() for each in results] == list(parts)
    results = run(
        queues, *(Request(kind="reduce_scatter", name="r", array=array.float(), prescale=2.0),) * 2
    )
    assert [each.tolist() for each in results] == [[4 * v for v in part] for part in parts]


def test_a_broadcast_leaves_the_input_alone_unless_it_is_the_output(
    queues: list[TensorQueue],
) -> None:
    arrays = [tensor(1, 2), tensor(3, 4)]
    results = run(
        queues, *(Request(kind="broadcast", name="b", array=each, root=1) for each in arrays)
    )
    assert [each.tolist() for each in [*results, arrays[0]]] == [[3, 4], [3, 4], [1, 2]]
    run(queues, *(Request(kind="broadcast", name="b", array=a, output=a, root=0) for a in arrays))
    assert [each.tolist() for each in arrays] == [[1, 2], [1, 2]]


def test_adasum_adds_what_is_orthogonal_and_averages_what_is_equal(
    queues: list[TensorQueue],
) -> None:
    for arrays, wanted in (
        ((tensor(3, 0), tensor(0, 4)), [3, 4]),
        ((tensor(2, 2), tensor(2, 2)), [2, 2]),
        ((tensor(0, 0), tensor(2, 2)), [2, 2]),
        ((tensor(2, 2), tensor(0, 0)), [2, 2]),
        ((tensor(1, 0), tensor(1, 1)), [1.25, 0.75]),
    ):
        results = run(queues, *(Request(kind="adasum", name="a", array=each) for each in arrays))
        assert [each.tolist() for each in results] == [wanted, wanted]


def test_a_rank_that_has_joined_gives_zeros_and_refuses_what_needs_its_data(
    queues: list[TensorQueue],
) -> None:
    last: list[int] = []
    joining = threading.Thread(target=lambda: last.append(queues[1].join()))
    joining.start()
    (handle,) = queues[0].submit([Request(kind="allreduce", name="a", array=tensor(1, 2))])
    assert handle.wait().tolist() == [1, 2]
    for kind in ("all_gather", "broadcast", "reduce_scatter"):
        (handle,) = queues[0].submit([Request(kind=kind, name="g", array=tensor(1, 2))])
        with pytest.raises(HorovodInternalError, match=r"not supported with Join .* tensor 'g'"):
            handle.wait()
    with pytest.raises(HorovodInternalError):
        queues[1].submit([Request(kind="allreduce", name="b", array=tensor(1))])
    assert queues[0].join() == 0
    joining.join()
    assert last == [0]
    # A name is free again though it was refused, and all may go on.
    results = run(queues, *(Request(kind="allreduce", name="b", array=tensor(1)),) * 2)
    assert [each.tolist() for each in results] == [[2], [2]]


def test_ranks_that_pass_other_things_hear_of_it_and_go_on(queues: list[TensorQueue]) -> None:
    for first, second in (
        (Request(kind="allreduce", name="a", array=tensor(1)), {"op": "max"}),
        (Request(kind="allreduce", name="a", array=tensor(1)), {"prescale": 2.0}),
        (Request(kind="allreduce", name="a", array=tensor(1)), {"postscale": 2.0}),
        (Request(kind="broadcast", name="a", array=tensor(1)), {"root": 1}),
        (Request(kind="allreduce", name="a", array=tensor(1)), {"array": tensor(1, 2)}),
    ):
        pair = (first, replace(first, **second))
        handles = [queue.submit([each])[0] for queue, each in zip(queues, pair, strict=True)]
        for handle in handles:
            with pytest.raises(HorovodInternalError, match="a"):
                handle.wait()


def test_a_barrier_gives_nothing_and_what_is_closed_fails(queues: list[TensorQueue]) -> None:
    barriers = [
        Request(kind="barrier", name="b", array=torch.zeros(0, dtype=torch.uint8)) for _ in "ab"
    ]
    assert run(queues, *barriers) == [None, None]
    (late,) = queues[0].submit([Request(kind="allreduce", name="late", array=tensor(1))])
    queues[1].close()
    with pytest.raises(HorovodInternalError):
        late.wait()
