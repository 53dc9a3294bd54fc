"""What a rank submits, what is compared of it, and who waits for it."""

import gc
from typing import Any

import numpy as np
import pytest

from slipstream import comm
from slipstream.comm.arrays import view
from slipstream.errors import PeerError
from slipstream.horovod.common.exceptions import HorovodInternalError
from slipstream.horovod.reductions import Adasum, Average, Max, Min, Product, Reduction, Sum
from slipstream.horovod.request import Request, Residual, TensorHandle
from slipstream.horovod.submission import AsyncResult

torch = pytest.importorskip("torch")

from slipstream.horovod.torch.arrays import TorchArrays  # noqa: E402
from slipstream.horovod.torch.compression import Compression, Compressor, codec_for  # noqa: E402


def test_a_request_sums_as_it_is_unless_it_says_otherwise() -> None:
    plain = Request(kind="allreduce", name="a", array=torch.zeros(2, 3))
    assert (plain.op, plain.prescale, plain.postscale, plain.root) == ("sum", 1.0, 1.0, 0)
    assert (plain.splits, plain.codec, plain.residual, plain.priority) == ((), "none", None, 0)
    tensor = plain.tensor(TorchArrays())
    assert (tensor.name, tensor.shape, tensor.collective) == ("a", (2, 3), "allreduce")
    assert (tensor.codec, tensor.root, tensor.note) == (
        "none",
        0,
        "allreduce sum 1 1 lossless on cpu",
    )


@pytest.mark.parametrize(
    ("kind", "title", "collective", "shape"),
    [
        ("allreduce", "Allreduce", "allreduce", (2, 3)),
        ("adasum", "Allreduce", "allreduce", (2, 3)),
        ("all_gather", "Allgather", "all_gather", (-1, 3)),
        ("broadcast", "Broadcast", "broadcast", (2, 3)),
        ("all_to_all", "Alltoall", "all_to_all", (-1, 3)),
        ("reduce_scatter", "Reducescatter", "reduce_scatter", (2, 3)),
        ("barrier", "Barrier", "allreduce", (2, 3)),
    ],
)
def test_ranks_compare_the_shape_but_for_rows_that_may_differ(
    kind: str, title: str, collective: str, shape: tuple[int, ...]
) -> None:
    request = Request(kind=kind, name="a", array=torch.zeros(2, 3), root=1)
    tensor = request.tensor(TorchArrays())
    assert (request.title, tensor.collective, tensor.shape) == (title, collective, shape)
    assert tensor.root == 1
    scalar = Request(kind=kind, name="a", array=torch.zeros(()))
    assert scalar.tensor(TorchArrays()).shape == ()


@pytest.mark.parametrize("residual", [None, Residual((2, 3))])
def test_a_rank_without_data_takes_the_same_part_with_zeros(residual: Any) -> None:
    given = Request(
        kind="allreduce",
        name="a",
        array=torch.ones(2, 3),
        op="average",
        prescale=1 / 3,
        postscale=2.5,
        codec="int8",
        residual=residual,
        root=1,
    )
    arrays = TorchArrays()

    def zeros(dtype: str, shape: Any, device: str) -> Any:
        assert device == "cpu"
        return arrays.zeros(dtype, shape)

    part = Request.without_data(given.tensor(arrays), zeros)
    seen = (part.kind, part.name, part.op, part.prescale, part.postscale, part.codec, part.root)
    assert seen == ("allreduce", "a", "average", 1 / 3, 2.5, "int8", 1)
    assert part.array is part.output
    assert (part.array.dtype, part.array.tolist()) == (torch.float32, [[0.0] * 3] * 2)
    assert (part.residual is None) is (residual is None)
    gathered = Request(kind="all_gather", name="a", array=torch.ones(3))
    assert Request.without_data(gathered.tensor(arrays), zeros).array is None


def test_a_handle_is_seen_once_and_gives_its_result_again() -> None:
    seen: list[TensorHandle] = []
    made: list[int] = []
    handle = TensorHandle("a", seen.append)
    assert (handle.name, handle.is_over(), handle.done(), seen) == ("a", False, False, [])
    handle.begin(None, lambda: made.append(1) or 7)
    assert (handle.is_over(), seen) == (True, [])
    assert (handle.done(), handle.done(), seen) == (True, True, [handle])
    assert (handle.wait(), handle.wait(), made) == (7, 7, [1])
    assert seen == [handle]


def test_a_handle_that_failed_raises_each_time_and_names_the_cause() -> None:
    def fail() -> None:
        raise PeerError("rank 1 is gone")

    failed, finished = TensorHandle(), TensorHandle()
    failed.fail(PeerError("rank 1 is gone"))
    finished.begin(None, fail)
    for handle in (failed, finished):
        handle.settle()
        assert handle.is_over()
        for _ in range(2):
            with pytest.raises(HorovodInternalError, match="rank 1 is gone") as caught:
                handle.wait()
            assert isinstance(caught.value.__cause__, PeerError)


def test_only_what_was_not_finished_is_left_to_others() -> None:
    dropped: list[Any] = []

    def drop(work: comm.Handle | None, finish: Any) -> None:
        dropped.append((work, finish()))

    for number, ends in enumerate((False, True)):
        handle = TensorHandle("a", None, drop)
        handle.begin(None, lambda number=number: number)
        if ends:
            handle.wait()
        del handle
    TensorHandle("never begun", None, drop)
    gc.collect()
    assert dropped == [(None, 0)]


def test_each_stream_that_synchronizes_waits_for_the_results() -> None:
    waits: list[str] = []
    tensors = [torch.zeros(1), torch.ones(2)]
    handles = [TensorHandle() for _ in tensors]
    for handle, tensor in zip(handles, tensors, strict=True):
        handle.begin(None, lambda tensor=tensor: tensor, lambda: waits.append("follow"))
    collective = AsyncResult([AsyncResult(handles, tuple)], lambda results: results[0])
    for turn in (1, 2, 3):
        first, second = collective.wait()
        assert (first is tensors[0], second is tensors[1]) == (True, True)
        assert len(waits) == 2 * turn


def test_reductions_have_horovods_numbers_and_the_engines_names() -> None:
    assert [int(each) for each in (Average, Sum, Adasum, Min, Max, Product)] == list(range(6))
    names = ["average", "sum", "adasum", "min", "max", "product"]
    assert [each.engine_name for each in Reduction] == names


@pytest.mark.parametrize(
    ("name", "codec", "sent"),
    [
        ("none", None, torch.float64),
        ("fp16", "fp16", torch.float16),
        ("bf16", "bf16", torch.bfloat16),
        ("int8", "int8", torch.float64),
    ],
)
def test_the_engine_encodes_float32_and_what_else_is_sent_is_cast(
    name: str, codec: str | None, sent: torch.dtype
) -> None:
    chosen: type[Compressor] = getattr(Compression, name)
    assert codec_for(chosen, torch.zeros(1)) == codec
    double, whole = torch.tensor([1.5], dtype=torch.float64), torch.tensor([3])
    assert codec_for(chosen, double) is None
    for tensor, dtype in ((double, sent), (whole, torch.int64)):
        packed, context = chosen.compress(tensor)
        assert packed.dtype == dtype
        assert torch.equal(chosen.decompress(packed, context), tensor)
        assert chosen.decompress(packed, context).dtype == tensor.dtype


def test_a_compression_of_the_users_is_not_the_engines() -> None:
    class Own(Compression.fp16):
        pass

    assert codec_for(Own, torch.zeros(1)) is None
    for call in (lambda: Compressor.compress(torch.zeros(1)), lambda: Compressor.decompress(1, 2)):
        with pytest.raises(NotImplementedError):
            call()


def test_tensors_are_scaled_in_a_type_that_holds_the_product() -> None:
    arrays = TorchArrays()
    whole = torch.tensor([2**53 // 3, -5])
    assert arrays.scaled(whole, 0.5).tolist() == [2**53 // 6, -2]
    half = torch.tensor([60000.0], dtype=torch.float16)
    assert arrays.scaled(half, 1 / 3).item() == torch.tensor(20000.0).half().item()
    third = arrays.scaled(torch.tensor([1.0], dtype=torch.bfloat16), 1.00390625)
    assert third.dtype == torch.bfloat16
    single = torch.tensor([3.0])
    assert arrays.scaled(single, 0.5).tolist() == [1.5]
    assert single.tolist() == [3.0]


@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_types_have_the_engines_names(name: str) -> None:
    arrays = TorchArrays()
    zeros = arrays.zeros(name, [2])
    assert zeros.dtype == getattr(torch, name)
    assert arrays.dtype(zeros) == name == view(zeros).dtype.name.lower()


def test_numbers_of_numpy_share_their_memory_with_a_tensor() -> None:
    arrays = TorchArrays()
    numbers = np.array([1, 2], np.int64)
    tensor = arrays.from_numpy(numbers)
    tensor[0] = 7
    assert numbers.tolist() == arrays.to_numpy(tensor).tolist() == [7, 2]


def test_arrays_are_laid_out_and_taken_apart_in_order() -> None:
    arrays = TorchArrays()
    parts = [torch.arange(4.0).reshape(2, 2), torch.tensor(9.0)]
    flat = arrays.flat(parts)
    assert flat.tolist() == [0, 1, 2, 3, 9]
    targets = [torch.zeros(2, 2), torch.zeros(())]
    arrays.unflatten(flat, targets)
    assert all(torch.equal(a, b) for a, b in zip(parts, targets, strict=True))
    assert arrays.rows(flat, 1, 3).data_ptr() == flat[1:].data_ptr()
    assert arrays.rows(flat, 1, 3).tolist() == [1, 2]
    assert arrays.shape(parts[0]) == (2, 2)
    assert arrays.empty(parts[0], [3]).dtype == torch.float32
