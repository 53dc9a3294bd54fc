"""Gradients in one memory, and buckets of them in the life of a step."""

from collections.abc import Iterator, Sequence

import pytest

torch = pytest.importorskip("torch")

from torch import distributed as dist  # noqa: E402
from torch.nn import Parameter  # noqa: E402

from slipstream.torch.buckets import Bucket, Gradients, Phase, cut, gradients_of  # noqa: E402
from slipstream.torch.process_group import SlipstreamProcessGroup, own_group  # noqa: E402


@pytest.fixture(scope="module")
def group() -> Iterator[SlipstreamProcessGroup]:
    """Yield a group of only this process."""
    dist.init_process_group("slipstream", store=dist.HashStore(), rank=0, world_size=1)
    yield own_group(dist.group.WORLD)
    dist.destroy_process_group()


def parameters(*sizes: int, dtype: torch.dtype = torch.float32) -> list[Parameter]:
    return [Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]


def sizes(cuts: Iterator[list[Parameter]]) -> list[list[int]]:
    return [[each.numel() for each in bucket] for bucket in cuts]


@pytest.mark.parametrize(
    ("elements", "bucket_bytes", "first_bytes", "buckets"),
    [
        ([], 40, 4, []),
        ([10], 40, 4, [[10]]),
        ([1, 10, 10], 40, 4, [[1], [10], [10]]),
        ([1] * 5, 8, 4, [[1], [1, 1], [1, 1]]),
        ([1] * 6, 8, 4, [[1], [1, 1, 1], [1, 1]]),
        ([2, 2, 2, 2], 16, 16, [[2, 2], [2, 2]]),
        ([100, 1, 1], 8, 8, [[100], [1, 1]]),
        ([1, 1, 2], 1000, 12, [[1, 1, 2]]),
        ([1, 1, 4], 1000, 12, [[1, 1], [4]]),
    ],
)
def test_buckets_are_even_after_a_first_one_of_its_own_size(
    elements: Sequence[int], bucket_bytes: int, first_bytes: int, buckets: list[list[int]]
) -> None:
    assert sizes(cut(parameters(*elements), bucket_bytes, first_bytes)) == buckets


def test_each_dtype_has_a_memory_in_reverse_order_and_float32_alone_keeps_losses() -> None:
    single, double = parameters(2, 3), parameters(4, dtype=torch.float64)
    made = gradients_of([single[0], *double, single[1]], keeps_losses=True)
    assert [each.buffer.numel() for each in made] == [5, 4]
    assert [each.buffer.dtype for each in made] == [torch.float32, torch.float64]
    assert [each.residual is not None for each in made] == [True, False]
    assert made[0].interval([single[1]]) == (0, 3)
    assert made[0].interval([single[0]]) == (3, 5)
    assert made[0].interval([single[1], single[0]]) == (0, 5)
    assert gradients_of(single, keeps_losses=False)[0].residual is None


def test_views_and_losses_are_parts_of_the_memory() -> None:
    pair = [Parameter(torch.zeros(2, 2)), Parameter(torch.zeros(3))]
    gradients = Gradients(pair, keeps_losses=True)
    gradients.buffer.copy_(torch.arange(7.0))
    assert gradients.views[pair[0]].tolist() == [[0, 1], [2, 3]]
    assert gradients.views[pair[1]].tolist() == [4, 5, 6]
    assert gradients.residual is not None
    gradients.residual.copy_(torch.arange(7.0))
    assert gradients.losses(pair[0]).tolist() == [[0, 1], [2, 3]]
    assert gradients.losses(pair[1]).tolist() == [4, 5, 6]
    bucket = Bucket(gradients, pair[1:], priority=3)
    assert (bucket.buffer.tolist(), bucket.priority, bucket.phase) == ([4, 5, 6], 3, Phase.IDLE)
    assert bucket.residual is not None
    assert bucket.residual.data_ptr() == gradients.residual[4:].data_ptr()
    assert bucket.view(pair[1]).data_ptr() == gradients.buffer[4:].data_ptr()
    assert (bucket.options, bucket.dropped, bucket.is_done()) == (None, False, True)


def filled(bucket: Bucket, *values: float) -> None:
    """Give each parameter a gradient with one value, which the bucket takes."""
    for parameter, value in zip(bucket.parameters, values, strict=False):
        parameter.grad = torch.full_like(parameter, value)
        bucket.fill(parameter)


def test_a_bucket_fills_is_averaged_and_shows_its_averages(group: SlipstreamProcessGroup) -> None:
    pair = parameters(2, 1)
    bucket = Bucket(Gradients(pair, False), pair, 0)
    assert not bucket.is_full
    filled(bucket, 3.0)
    assert (bucket.phase, bucket.is_full, bucket.missing) == (Phase.FILLING, False, {pair[1]})
    assert pair[0].grad is None
    filled(bucket, 3.0, 4.0)
    assert bucket.is_full
    bucket.launch(group, "none")
    assert (bucket.phase, bucket.is_full) == (Phase.REDUCING, False)
    bucket.finish()
    assert (bucket.phase, bucket.is_done()) == (Phase.REDUCED, True)
    assert bucket.buffer.tolist() == [3, 3, 4]
    bucket.expose(frozenset(pair[1:]))
    assert pair[0].grad is bucket.view(pair[0])
    assert pair[1].grad is None
    bucket.hide()
    assert pair[0].grad is None


@pytest.mark.parametrize(("dropped", "sums"), [(False, [5, 5, 2]), (True, [3, 3, 0])])
def test_gradients_add_up_after_a_pass_without_a_step_unless_they_were_zeroed(
    group: SlipstreamProcessGroup, dropped: bool, sums: list[float]
) -> None:
    pair = parameters(2, 1)
    bucket = Bucket(Gradients(pair, False), pair, 0)
    filled(bucket, 2.0, 2.0)
    bucket.launch(group, "none")
    bucket.finish()
    bucket.dropped = dropped
    filled(bucket, 3.0)
    assert not bucket.dropped
    without = bucket.fill_with_zeros()
    assert bucket.is_full
    assert without == (pair[1:] if dropped else [])
    assert bucket.buffer.tolist() == sums


def test_what_has_no_gradient_is_zero_and_is_named_in_order() -> None:
    three = parameters(1, 1, 1)
    gradients = Gradients(three, False)
    gradients.buffer.fill_(9.0)
    bucket = Bucket(gradients, three, 0)
    three[1].grad = bucket.view(three[1])  # autograd has added in place: nothing is copied
    bucket.fill(three[1])
    assert bucket.fill_with_zeros() == [three[0], three[2]]
    assert bucket.buffer.tolist() == [0, 9, 0]
