"""Attention in parts: the products, passes and values of its kernels, by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from slipstream.forecast.trace import trace
from slipstream.forecast.trace.architectures.transformer import SelfAttention, TransformerSize
from slipstream.forecast.work.attention import unfused
from slipstream.forecast.work.workload import Operator, OperatorKind, TrainingPhase, Workload

# Two samples of two heads, four tokens each: 64 scores of four bytes.
BATCH, HEADS, TOKENS, HEAD = 2, 2, 4, 8
SCORES = BATCH * HEADS * TOKENS * TOKENS


def _traced() -> Workload:
    size = TransformerSize(hidden=HEADS * HEAD, layers=1, heads=HEADS)
    return trace(
        lambda: SelfAttention(size, causal=True),
        lambda: [torch.empty(BATCH, TOKENS, HEADS * HEAD, requires_grad=True)],
        name="attention", samples=BATCH,
    )  # fmt: skip


def _parts(workload: Workload, phase: TrainingPhase) -> list[Operator]:
    return [
        each
        for each in workload.operators
        if each.phase is phase and each.name in ("bmm", "softmax", "dropout")
    ]


def test_a_model_without_attention_stays_as_it_is():
    plain = trace(lambda: nn.Linear(2, 2), lambda: [torch.empty(1, 2)], name="plain", samples=1)
    assert unfused(plain, dropout=True) is plain


@pytest.mark.parametrize("dropout", [False, True])
def test_the_forward_pass_is_two_products_with_passes_between(dropout: bool):
    parts = _parts(unfused(_traced(), dropout=dropout), TrainingPhase.FORWARD)
    dropped = ["dropout"] if dropout else []
    assert [each.name for each in parts] == ["bmm", "softmax", *dropped, "bmm"]
    first, softmax, last = parts[0], parts[1], parts[-1]
    (scores,), (sums,) = first.products, last.products
    sizes = BATCH * HEADS, TOKENS, TOKENS, HEAD
    assert (scores.batch, scores.m, scores.n, scores.k) == sizes
    assert (sums.batch, sums.m, sums.n, sums.k) == (BATCH * HEADS, TOKENS, HEAD, TOKENS)
    # A kernel that is not fused computes masked scores as well.
    assert scores.fill == sums.fill == 1.0
    rows = BATCH * HEADS * TOKENS * HEAD
    assert first.bytes_moved == last.bytes_moved == 4 * (SCORES + 2 * rows)
    assert softmax.bytes_moved == 2 * 4 * SCORES
    if dropout:
        # Scores are read and written, and the mask has a byte per score.
        assert parts[2].bytes_moved == SCORES * (2 * 4 + 1)
    assert {each.kind for each in parts} == {OperatorKind.PRODUCT, OperatorKind.MEMORY}


@pytest.mark.parametrize("dropout", [False, True])
def test_the_backward_pass_is_four_products(dropout: bool):
    parts = _parts(unfused(_traced(), dropout=dropout), TrainingPhase.BACKWARD)
    counts = Counter(each.name for each in parts)
    assert counts == Counter(bmm=4, softmax=1, **({"dropout": 1} if dropout else {}))
    (softmax,) = (each for each in parts if each.name == "softmax")
    assert softmax.bytes_moved == 3 * 4 * SCORES
    products = [each.products[0] for each in parts if each.name == "bmm"]
    flops = 2 * BATCH * HEADS * TOKENS * TOKENS * HEAD
    assert [each.flops for each in products] == [flops] * 4
    assert {each.fill for each in products} == {1.0}


@pytest.mark.parametrize(
    ("softmax_of", "forward", "backward"),
    [(1, [2], [3]), (4, [2], [3]), (3, [2, 2, 3, 4, 3], [3, 6, 3, 2, 2])],
)
def test_softmax_is_one_kernel_where_samples_and_heads_are_a_multiple(
    softmax_of: int, forward: list[int], backward: list[int]
):
    found = unfused(_traced(), dropout=False, softmax_of=softmax_of)
    for phase, passes in ((TrainingPhase.FORWARD, forward), (TrainingPhase.BACKWARD, backward)):
        moved = [each.bytes_moved for each in _parts(found, phase) if each.name == "softmax"]
        assert moved == [count * 4 * SCORES for count in passes]


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("softmax_of", [1, 3])
def test_values_live_from_what_writes_them_to_what_reads_them_last(dropout: bool, softmax_of: int):
    before = _traced()
    found = unfused(before, dropout=dropout, softmax_of=softmax_of)
    fresh = found.values[len(before.values) :]
    # These are scores, shares and the gradient of shares; with dropout, also its result and a mask.
    sizes = sorted(each.num_bytes for each in fresh)
    assert sizes == sorted([4 * SCORES] * (4 if dropout else 3) + [SCORES] * dropout)
    for index, value in enumerate(fresh, len(before.values)):
        assert index in found.operators[value.born].writes
        assert index in found.operators[value.dies - 1].reads
        uses = [n for n, op in enumerate(found.operators) if index in (*op.reads, *op.writes)]
        assert (value.born, value.dies) == (uses[0], uses[-1] + 1)
    for index, value in enumerate(found.values[: len(before.values)]):
        read = [n for n, each in enumerate(found.operators) if index in each.reads]
        if value.born >= 0 and value.dies >= 0:
            assert value.born < value.dies
            assert all(value.born <= n < value.dies for n in read), index
    for kept in before.parameters:
        (now,) = (each for each in found.parameters if each.name == kept.name)
        same = found.operators[now.ready], before.operators[kept.ready]
        assert replace(same[0], reads=(), writes=()) == replace(same[1], reads=(), writes=())
    # The shares, the result of dropout and its mask are saved for the backward pass.
    back = min(n for n, each in enumerate(found.operators) if each.phase is TrainingPhase.BACKWARD)
    assert sum(each.born < back < each.dies for each in fresh) == (3 if dropout else 1)
