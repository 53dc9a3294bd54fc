"""Tensors as the engine sees them: addresses, counts and dtypes, and the copies that are needed."""

import pytest

torch = pytest.importorskip("torch")

from torch.distributed import ReduceOp  # noqa: E402

from slipstream import _core  # noqa: E402
from slipstream.errors import UnsupportedError, UsageError  # noqa: E402
from slipstream.torch import tensors  # noqa: E402

DTYPES = (
    "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64"
    " complex64 complex128 bool"
)


def test_every_dtype_has_the_engines_of_the_same_name_and_size() -> None:
    assert [str(each)[6:] for each in tensors.DTYPES] == DTYPES.split()
    for dtype, found in tensors.DTYPES.items():
        assert found.name.lower() == str(dtype)[6:]
        assert _core.itemsize(found) == dtype.itemsize
        tensor = torch.zeros(2, 3, dtype=dtype)
        assert tensors.extent(tensor) == (6, found)
        assert tensors.reduced_dtype(tensor) == found


def test_an_unknown_dtype_moves_as_bytes_and_is_not_reduced() -> None:
    tensor = torch.zeros(3, dtype=torch.float8_e5m2)
    assert tensors.extent(tensor) == (3, _core.DType.UINT8)
    with pytest.raises(UnsupportedError, match=r"reduction of torch\.float8_e5m2: .*adds int8, ui"):
        tensors.reduced_dtype(tensor)


@pytest.mark.parametrize("name", ["SUM", "AVG", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR"])
def test_reductions_have_the_engines_words(name: str) -> None:
    word = "AVERAGE" if name == "AVG" else name
    op = ReduceOp(getattr(ReduceOp, name))
    assert tensors.reduce_op(op) == getattr(_core.ReduceOp, word)


def test_a_reduction_with_a_factor_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"reduction PREMUL_SUM: .*SUM, AVG, MIN.*then use"):
        tensors.reduce_op(torch.distributed._make_nccl_premul_sum(2.0))


@pytest.mark.parametrize("count", [0, 2])
def test_an_operation_has_one_tensor(count: int) -> None:
    one = torch.zeros(1)
    assert tensors.single([one]) is one
    with pytest.raises(UsageError, match=f"{count} tensors in one operation; allowed: 1 a rank"):
        tensors.single([one] * count)


def test_devices_and_sparse_layouts_are_refused() -> None:
    with pytest.raises(
        UnsupportedError,
        match="a tensor on meta: slipstream takes tensors on the CPU and on CUDA GPUs",
    ):
        tensors.usable(torch.zeros(1, device="meta"))
    with pytest.raises(UnsupportedError, match=r"layout torch\.sparse_coo"):
        tensors.usable(torch.zeros(2).to_sparse())
    with pytest.raises(UnsupportedError):
        tensors.flat_output_buffer([torch.zeros(2).to_sparse()])


def test_only_what_is_not_ready_in_memory_is_copied() -> None:
    plain = torch.arange(6.0).reshape(2, 3)
    assert tensors.dense(plain) is plain
    assert tensors.output_buffer(plain) == (plain, ())
    complex_ = torch.tensor([1 + 2j, 3 - 1j])
    for tensor in (plain.t(), complex_.conj(), complex_.conj().imag, plain[:, :1]):
        copy = tensors.dense(tensor)
        assert copy is not tensor
        assert copy.is_contiguous()
        assert (copy.is_conj(), copy.is_neg()) == (False, False)
        assert torch.equal(copy, tensor.clone())
        buffer, copies = tensors.output_buffer(tensor)
        assert [(target is tensor, source is buffer) for target, source in copies] == [(True, True)]


def test_results_go_where_the_caller_wants_them_also_in_inference_mode() -> None:
    with torch.inference_mode():
        frozen = torch.zeros(2)
    leaf = torch.zeros(2, requires_grad=True)
    source = torch.ones(2)
    tensors.copy_out(((frozen, source), (leaf, source)))
    assert frozen.tolist() == leaf.tolist() == [1, 1]
    tensors.copy_out(())


@pytest.mark.parametrize("shape", [(4,), (2, 4), (4, 1, 3)])
@pytest.mark.parametrize("value", [3.0, float("nan")])
def test_results_that_are_the_same_go_to_elements_that_are_repeated(
    shape: tuple[int, ...], value: float
) -> None:
    base = torch.zeros(())
    tensors.copy_out(((base.expand(shape), torch.full(shape, value)),))
    torch.testing.assert_close(base, torch.tensor(value), equal_nan=True)
    rows = torch.zeros(2, 1)
    wanted = torch.tensor([[1.0], [2.0]])
    tensors.copy_out(((rows.expand(2, 3), wanted.expand(2, 3).clone()),))
    assert torch.equal(rows, wanted)


def test_results_that_differ_have_no_place_where_elements_are_repeated() -> None:
    base = torch.zeros(1)
    with pytest.raises(UsageError, match=r"along dimension 0.*shape \(3,\) differ.*clone"):
        tensors.copy_out(((base.expand(3), torch.arange(3.0)),))
    assert base.item() == 0


def test_tensors_that_follow_one_another_are_one_without_a_copy() -> None:
    whole = torch.arange(10.0)
    parts = list(whole[2:8].chunk(3))
    flat = tensors.view_over(parts)
    assert flat is not None
    assert flat.data_ptr() == parts[0].data_ptr()
    assert flat.tolist() == [2, 3, 4, 5, 6, 7]
    assert tensors.flat_input(parts).data_ptr() == flat.data_ptr()
    room, copies = tensors.flat_output_buffer(parts)
    assert (room.data_ptr(), copies) == (flat.data_ptr(), ())


@pytest.mark.parametrize("kind", ["gap", "order", "other", "strided", "sparse", "conj", "neg"])
def test_what_does_not_follow_is_joined_in_a_copy(kind: str) -> None:
    whole = torch.arange(10.0)
    complex_ = torch.tensor([1 + 2j, 3 - 1j, 0j, 1j])
    lists = {
        "gap": [whole[:2], whole[3:5]],
        "order": [whole[2:4], whole[:2]],
        "other": [whole[:2], torch.zeros(2)],
        "strided": [whole[::2]],
        "sparse": [whole.to_sparse()],
        "conj": [complex_[:2].conj(), complex_[2:].conj()],
        "neg": [torch._neg_view(whole[:2])],
    }
    chosen = lists[kind]
    assert tensors.view_over(chosen) is None
    if kind == "sparse":
        return
    wanted = torch.cat([each.clone().reshape(-1) for each in chosen])
    assert torch.equal(tensors.flat_input(chosen), wanted)
    room, copies = tensors.flat_output_buffer(chosen)
    assert (room.numel(), room.dtype) == (wanted.numel(), wanted.dtype)
    assert [target for target, _ in copies] == chosen or len(copies) == len(chosen)
    assert all(target.shape == source.shape for target, source in copies)
    assert copies[-1][1].data_ptr() == room[-chosen[-1].numel() :].data_ptr()


def test_one_operation_has_one_dtype() -> None:
    tensors.check_same_dtype([torch.zeros(1), torch.ones(2)])
    with pytest.raises(UsageError, match=r"tensors of torch\.float32, torch\.int32 in one"):
        tensors.check_same_dtype([torch.zeros(1, dtype=torch.int32), torch.zeros(1)])
    with pytest.raises(UsageError):
        tensors.check_same_dtype([])


def test_cuts_are_views_along_the_first_dimension() -> None:
    whole = torch.arange(10).reshape(5, 2)
    parts = tensors.cut(whole, [1, 0, 4])
    assert [each.shape[0] for each in parts] == [1, 0, 4]
    assert parts[2].data_ptr() == whole[1:].data_ptr()
