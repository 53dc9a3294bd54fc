"""Which tensors share an operation."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from slipstream import comm  # noqa: E402
from slipstream.comm.negotiator import AgreedTensor, Negotiator  # noqa: E402
from slipstream.horovod.fusion import ReadyTensor, fuse  # noqa: E402
from slipstream.horovod.request import Request, TensorHandle  # noqa: E402
from slipstream.horovod.torch.arrays import TorchArrays  # noqa: E402

MIB = 1 << 20


@pytest.fixture(scope="module")
def negotiator() -> Iterator[Negotiator]:
    """Yield a negotiator of one rank, which agrees with itself."""
    made = Negotiator(comm.init())
    yield made
    made.close()
    comm.shutdown()


def ready(negotiator: Negotiator, *groups: list[Request]) -> list[ReadyTensor]:
    """Return requests on which all ranks have agreed, some of them as groups."""
    requests = [each for group in groups for each in group]
    token = 0
    agreed: list[AgreedTensor] = []
    for group in groups:
        tokens = range(token, token + len(group))
        tensors = [each.tensor(TorchArrays()) for each in group]
        if len(group) > 1:
            negotiator.submit_fused(tensors, tokens)
        else:
            negotiator.submit_all(tensors, token)
        token += len(group)
    while len(agreed) < len(requests):
        outcome = negotiator.next(10.0)
        assert outcome is not None
        agreed += outcome.ready
    agreed.sort(key=lambda each: each.token)
    return [
        ReadyTensor(each, request, TensorHandle())
        for each, request in zip(agreed, requests, strict=True)
    ]


def of(
    name: str, size: int, kind: str = "allreduce", dtype: str = "uint8", op: str = "sum"
) -> Request:
    return Request(
        kind=kind, name=name, array=torch.zeros(size, dtype=getattr(torch, dtype)), op=op
    )


def names(
    negotiator: Negotiator, groups: list[list[Request]], most: int = 64 * MIB, apart: bool = False
) -> list[str]:
    fused = fuse(ready(negotiator, *groups), most, separates_groups=apart)
    for each in fused:
        assert each.num_bytes == sum(member.num_bytes for member in each.members)
    return ["".join(member.request.name for member in each.members) for each in fused]


@pytest.mark.parametrize(("size", "shared"), [(MIB - 1, ["ab"]), (MIB, ["a", "b"]), (0, ["ab"])])
def test_a_mebibyte_is_reduced_by_itself(
    negotiator: Negotiator, size: int, shared: list[str]
) -> None:
    assert names(negotiator, [[of("a", size)], [of("b", 1)]]) == shared


@pytest.mark.parametrize(
    ("most", "shared"), [(20, ["ab", "c"]), (19, ["a", "bc"]), (9, ["a", "b", "c"])]
)
def test_an_operation_has_at_most_so_many_bytes(
    negotiator: Negotiator, most: int, shared: list[str]
) -> None:
    groups = [[of("a", 10)], [of("b", 10)], [of("c", 9)]]
    assert names(negotiator, groups, most) == shared


def test_only_tensors_of_one_type_and_one_kind_share_and_the_order_is_that_of_the_first(
    negotiator: Negotiator,
) -> None:
    groups = [
        [of("a", 8)],
        [of("b", 2, dtype="float32")],
        [of("c", 8, op="max")],
        [of("d", 8, kind="broadcast")],
        [of("e", 8)],
        [of("f", 2, dtype="float32")],
    ]
    assert names(negotiator, groups) == ["ae", "bf", "c", "d"]


@pytest.mark.parametrize(
    ("size", "apart", "shared"),
    [(8, False, ["abcd"]), (8, True, ["ad", "bc"]), (MIB, False, ["ad", "bc"])],
)
def test_groups_share_whatever_their_size_and_with_others_where_they_are_small(
    negotiator: Negotiator, size: int, apart: bool, shared: list[str]
) -> None:
    groups = [[of("a", 8)], [of("b", size), of("c", size)], [of("d", 8)]]
    assert names(negotiator, groups, apart=apart) == shared


def test_a_tensors_bytes_are_those_of_its_elements(negotiator: Negotiator) -> None:
    (one,) = ready(
        negotiator, [Request(kind="allreduce", name="a", array=torch.zeros(2, 3).double())]
    )
    assert one.num_bytes == 48
