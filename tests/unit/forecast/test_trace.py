"""A model's operators, memory and gradients are those that PyTorch would run."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from slipstream.errors import UsageError
from slipstream.forecast.trace import trace
from slipstream.forecast.trace.architectures.transformer import Decoder, TransformerSize
from slipstream.forecast.work.workload import OperatorKind, Product, TrainingPhase, Workload


def _products(workload: Workload, phase: TrainingPhase) -> list[Product]:
    return [p for op in workload.operators if op.phase is phase for p in op.products]


def test_a_linear_layer_is_one_product_forward_and_two_backward():
    workload = trace(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 8)),
        lambda: [torch.empty(2, 4)],
        name="two layers",
        samples=2,
    )
    assert _products(workload, TrainingPhase.FORWARD) == [Product(1, 2, 6, 4), Product(1, 2, 8, 6)]
    # The first layer's input has no gradient.
    assert workload.flops(TrainingPhase.BACKWARD) == 2 * 2 * (2 * 8 * 6) + 2 * (2 * 4 * 6)
    assert workload.num_parameters == 4 * 6 + 6 + 6 * 8 + 8


def test_rows_that_begin_at_odd_numbers_are_seen_where_they_are():
    # GPT-2's vocabulary makes rows of results, of gradients and of transposed operands odd.
    workload = trace(
        lambda: nn.Linear(4, 7), lambda: [torch.empty(2, 4, requires_grad=True)],
        name="words", samples=2,
    )  # fmt: skip
    assert [p.odd for p in _products(workload, TrainingPhase.FORWARD)] == [True]
    assert [p.odd for p in _products(workload, TrainingPhase.BACKWARD)] == [True, True]
    # An odd number of rows alone does not make rows odd.
    workload = trace(
        lambda: nn.Linear(4, 8), lambda: [torch.empty(7, 4, requires_grad=True)],
        name="rows", samples=7,
    )  # fmt: skip
    assert not any(p.odd for op in workload.operators for p in op.products)


@pytest.mark.parametrize("channels", [4, 8, 32])
def test_groups_are_wide_or_narrow_whatever_the_batch(channels: int):
    def kinds(batch: int) -> list[OperatorKind]:
        workload = trace(
            lambda: nn.Conv2d(8 * channels, 8 * channels, 3, padding=1, groups=8),
            lambda: [torch.empty(batch, 8 * channels, 5, 5, requires_grad=True)],
            name="groups", samples=batch,
        )  # fmt: skip
        return [op.kind for op in workload.operators if op.products]

    # A batch of one has fewer pixels than a group of 8 channels has taps.
    assert kinds(1) == kinds(2) == kinds(64)


@pytest.mark.parametrize(
    ("groups", "kind"), [(1, OperatorKind.CONVOLUTION), (8, OperatorKind.DEPTHWISE)]
)
def test_a_convolution_is_a_product_over_its_windows(groups: int, kind: OperatorKind):
    def make() -> nn.Module:
        return nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=groups, bias=False)

    image = torch.empty(4, 8, 10, 12, requires_grad=True)
    workload = trace(make, lambda: [image.clone()], name="convolution", samples=4)
    (product,) = _products(workload, TrainingPhase.FORWARD)
    assert product == Product(groups, 4 * 5 * 6, 16 // groups, 8 // groups * 9)
    assert workload.flops(TrainingPhase.BACKWARD) == 2 * product.flops
    assert {op.kind for op in workload.operators if op.products} == {kind}


def test_a_transposed_convolution_multiplies_where_it_reads():
    def make() -> nn.Module:
        return nn.ConvTranspose2d(6, 4, 2, stride=2, bias=False)

    workload = trace(make, lambda: [torch.empty(1, 6, 5, 5)], name="up", samples=1)
    assert workload.flops(TrainingPhase.FORWARD) == 2 * 25 * 6 * 4 * 2 * 2


def test_fused_attention_has_the_products_of_the_unfused():
    sizes = {"hidden": 32, "layers": 1, "heads": 4, "vocabulary": 64, "positions": 16}

    def flops(fused: bool, phase: TrainingPhase) -> float:
        size = TransformerSize(fused=fused, dropout=0.0, **sizes)
        tokens = torch.zeros(2, 16, dtype=torch.long)
        return trace(lambda: Decoder(size), lambda: [tokens], name="gpt", samples=2).flops(phase)

    assert flops(True, TrainingPhase.FORWARD) == flops(False, TrainingPhase.FORWARD)
    # The backward pass of fused attention computes the scores again.
    scores = 2 * 2 * 16 * 16 * 32
    assert flops(True, TrainingPhase.BACKWARD) == flops(False, TrainingPhase.BACKWARD) + scores


def test_gradients_are_ready_in_the_order_of_the_backward_pass():
    workload = trace(
        lambda: nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, bias=False)),
        lambda: [torch.empty(2, 3)],
        name="two layers",
        samples=2,
    )
    first, *others = (gradient.name for gradient in workload.gradients())
    assert first == "1.weight"
    assert set(others) == {"0.weight", "0.bias"}


def test_what_is_not_trained_has_no_gradient():
    def make() -> nn.Module:
        module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        module[0].requires_grad_(False)
        return module

    workload = trace(make, lambda: [torch.empty(2, 3)], name="half", samples=2)
    assert {p.name: p.ready >= 0 for p in workload.parameters} == {
        "0.weight": False,
        "0.bias": False,
        "1.weight": True,
        "1.bias": True,
    }
    with pytest.raises(UsageError, match="frozen returns nothing that has a gradient"):
        trace(
            lambda: nn.Linear(3, 3).requires_grad_(False),
            lambda: [torch.empty(2, 3)],
            name="frozen",
            samples=2,
        )


def test_memory_that_backward_needs_lives_until_then():
    workload = trace(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)),
        lambda: [torch.empty(8, 4)],
        name="three layers",
        samples=8,
    )
    first_backward = next(
        i for i, op in enumerate(workload.operators) if op.phase is TrainingPhase.BACKWARD
    )
    kept = [v for v in workload.values if v.num_bytes == 8 * 6 * 4 and v.born < first_backward]
    assert len(kept) == 2  # what GELU reads, and what it wrote
    assert all(value.dies > first_backward for value in kept)
    for value in workload.values:
        assert value.dies == -1 or value.dies > value.born


def test_views_cost_nothing_and_operators_in_place_do():
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ self.weight).view(-1).relu_().reshape(2, 8).t()

    workload = trace(InPlace, lambda: [torch.empty(4, 4)], name="in place", samples=4)
    forward = [op.name for op in workload.operators if op.phase is TrainingPhase.FORWARD]
    assert forward == ["mm", "relu_"]


def test_mixed_precision_multiplies_in_it():
    workload = trace(
        lambda: nn.Linear(8, 8),
        lambda: [torch.empty(4, 8)],
        name="mixed",
        samples=4,
        autocast=torch.bfloat16,
    )
    assert {op.dtype for op in workload.operators if op.products} == {"bfloat16"}


def test_operators_know_their_module():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).sin()

    workload = trace(Net, lambda: [torch.empty(2, 3)], name="net", samples=2)
    forward = {op.name: op.module for op in workload.operators if op.phase is TrainingPhase.FORWARD}
    assert forward == {"addmm": "Net.inner.0", "relu": "Net.inner.1", "sin": "Net"}


def test_what_a_checkpoint_computes_again_is_of_the_backward_pass():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(lambda x: self.inner(x).sin(), x.sin(), use_reentrant=False)

    workload = trace(Net, lambda: [torch.empty(2, 4)], name="net", samples=2)
    assert workload.flops(TrainingPhase.FORWARD) == 2 * 2 * 4 * 4
    assert workload.flops(TrainingPhase.BACKWARD) == 2 * workload.flops(
        TrainingPhase.FORWARD
    )  # again, and weights


@pytest.mark.parametrize(
    ("convert", "bytes_each"),
    [
        (lambda module: module.to(memory_format=torch.channels_last), 4),
        (lambda module: module.half().float(), 4),
        (lambda module: module.to(torch.bfloat16), 2),
    ],
)
def test_factories_may_convert_what_they_make(
    convert: Callable[[nn.Module], nn.Module], bytes_each: int
):
    """PyTorch itself refuses to, for the first module that meets an operator."""
    before = nn.Module._apply

    def make() -> nn.Module:
        module = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 3))
        module[2].weight = module[0].weight
        return convert(module)

    dtype = torch.bfloat16 if bytes_each == 2 else torch.float32
    image = torch.empty(2, 3, 8, 8, dtype=dtype)
    workload = trace(make, lambda: [image.clone()], name="converted", samples=2)
    # The weight that both convolutions share is still one parameter.
    assert workload.num_parameters == 3 * 3 * 9 + 3 + 2 * 3 + 3
    assert workload.parameters[0].num_bytes == 81 * bytes_each
    assert all(each.ready >= 0 for each in workload.parameters)
    assert nn.Module._apply is before


def test_weights_take_no_memory():
    # The weights would take 64 TB.
    workload = trace(
        lambda: nn.Linear(2**22, 2**22, bias=False),
        lambda: [torch.empty(1, 2**22)],
        name="large",
        samples=1,
    )
    assert math.log2(workload.parameters[0].num_bytes) == 46
