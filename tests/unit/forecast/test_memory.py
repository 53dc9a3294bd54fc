"""Properties of traces that a replay relies on, and the effect of strategies on the peak."""

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from slipstream.forecast.memory import (
    FullError,
    PeakMemory,
    ReplayOptions,
    checkpointed,
    replay,
    units,
)
from slipstream.forecast.memory.sharing import gradient_owners
from slipstream.forecast.trace import trace
from slipstream.forecast.trace.architectures.names import find
from slipstream.forecast.trace.architectures.transformer import Decoder, TransformerSize
from slipstream.forecast.work.strategy import Exchange, Optimizer, Strategy
from slipstream.forecast.work.workload import TrainingPhase, Workload

GPT = TransformerSize(
    hidden=128, layers=4, heads=4, vocabulary=512, positions=128, dropout=0.0
)  # fmt: skip
# The model has more weights than activations.
HEAVY = replace(GPT, hidden=512, heads=8)


def _peak(
    optimizer: Optimizer,
    workload: Workload,
    strategy: Strategy,
    *,
    most_bytes: float = math.inf,
    **settings: Any,
) -> PeakMemory:
    options = ReplayOptions(**settings)
    return replay(workload, strategy, optimizer=optimizer, options=options, most_bytes=most_bytes)


ADAM = partial(_peak, Optimizer.ADAM)
SGD = partial(_peak, Optimizer.SGD)


def _tokens(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.zeros(batch, 128, dtype=torch.long),)


def _traced(size: TransformerSize, batch: int = 8) -> Workload:
    return trace(lambda: Decoder(size), lambda: _tokens(batch), name="gpt", samples=batch)


@pytest.fixture(scope="module")
def gpt() -> Workload:
    return _traced(GPT)


@pytest.fixture(scope="module")
def heavy() -> Workload:
    return _traced(HEAVY, batch=1)


def _uses(peak: PeakMemory) -> int:
    return (
        peak.parameters + peak.gradients + peak.states + peak.activations + peak.workspace
        + peak.communication
    )  # fmt: skip


def _check_lives(workload: Workload) -> None:
    """Check that an operator reads only values that were written and are not freed yet."""
    for index, operator in enumerate(workload.operators):
        for value in (workload.values[i] for i in operator.reads):
            is_new = value.born == index and index in _writers(workload, operator.reads)
            assert value.born < index or is_new
            assert value.dies < 0 or value.dies > index
        for value in operator.writes:
            assert workload.values[value].born <= index


# Properties of traces.


@pytest.mark.slow("life of tensors")
@pytest.mark.parametrize(
    ("name", "batch"), [("resnet18", 2), ("mobilenet-v2", 2), ("wide-deep", 8), ("gpt2", 1)]
)
def test_gradients_are_born_in_the_backward_pass_and_never_die(name: str, batch: int):
    architecture = find(name)
    workload = trace(architecture.make, lambda: architecture.inputs(batch), name=name, samples=1)
    owners = gradient_owners(workload)
    assert sorted(owners.values()) == list(range(len(workload.parameters)))
    for value, owner in owners.items():
        assert workload.values[value].num_bytes == workload.parameters[owner].num_bytes
    # All other values that never die exist before: parameters, buffers and inputs.
    forever = {i for i, value in enumerate(workload.values) if value.dies < 0}
    assert {i for i in forever if workload.values[i].born >= 0} == owners.keys()


def test_repeated_modules_are_units(gpt: Workload):
    found = units(gpt)
    assert [unit.name for unit in found] == [f"Decoder.blocks.{i}" for i in range(4)]
    operators = gpt.operators
    for unit, following in pairwise(found):
        assert unit.forward.stop == following.forward.start
        assert following.backward.stop <= unit.backward.start
        names = {gpt.parameters[index].name for index in unit.parameters}
        assert all(name.startswith(unit.name.removeprefix("Decoder.")) for name in names)
        assert all(unit.name in operators[index].module for index in unit.forward)


def test_a_list_that_holds_most_of_a_model_is_looked_into():
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4))),
            nn.Linear(8, 2),
        )

    workload = trace(make, lambda: [torch.empty(4, 8)], name="nested", samples=4)
    assert [unit.name for unit in units(workload)] == [
        *(f"Sequential.0.{i}" for i in range(4)),
        "Sequential.1",
    ]


def test_a_model_without_lists_has_no_units_and_nothing_to_compute_again():
    workload = trace(lambda: nn.Linear(8, 8), lambda: [torch.empty(4, 8)], name="one", samples=4)
    assert units(workload) == ()
    assert checkpointed(workload) == workload


# Effects of strategies.


def test_the_parts_of_a_peak_add_up(gpt: Workload):
    for strategy in (Strategy(), Strategy(data=4, zero=3, checkpoint=True, micro_batches=3)):
        peak = ADAM(gpt, strategy, workspace_bytes=8 << 20, context_bytes=500 << 20)
        assert _uses(peak) == peak.allocated
        assert peak.reserved >= peak.allocated + (500 << 20)
        assert peak.workspace >= 8 << 20


def test_the_second_step_has_states_beside_activations(gpt: Workload):
    weights = sum(each.num_bytes for each in gpt.parameters)
    none, one, two = (replay(gpt, Strategy(), optimizer=kind) for kind in Optimizer)
    assert none.states == 0
    assert one.allocated - none.allocated == pytest.approx(weights, rel=0.1)
    assert two.allocated - none.allocated == pytest.approx(2 * weights, rel=0.1)
    assert none.at == none.at.strip() != ""


@pytest.mark.slow("life of tensors")
def test_an_update_that_is_not_fused_has_temporaries(heavy: Workload):
    weights = sum(each.num_bytes for each in heavy.parameters)
    peak = ADAM(heavy, Strategy())
    assert peak.at == "optimizer step"
    assert peak.workspace == pytest.approx(weights, rel=0.1)
    assert ADAM(heavy, Strategy(), fused=True).workspace == 0


def test_copies_in_fp32_belong_to_the_states(heavy: Workload):
    narrow = replace(
        heavy,
        parameters=tuple(replace(each, num_bytes=each.num_bytes // 2) for each in heavy.parameters),
    )
    elements = narrow.num_parameters
    with_copies, without = (ADAM(narrow, Strategy(), master=flag) for flag in (True, False))
    assert with_copies.states == pytest.approx(12 * elements, rel=0.1)
    assert without.states == pytest.approx(4 * elements, rel=0.1)
    # These are the roots of moments, and gradients in fp32.
    assert with_copies.workspace == pytest.approx(8 * elements, rel=0.1)
    assert with_copies.parameters == pytest.approx(2 * elements, rel=0.1)


def test_zero_shares_out_states_then_gradients_then_parameters(heavy: Workload):
    whole, one, two, three = (
        ADAM(heavy, Strategy(data=8, zero=zero, bucket_bytes=1 << 20), fused=True)
        for zero in range(4)
    )
    weights = sum(each.num_bytes for each in heavy.parameters)
    assert one.states == pytest.approx(whole.states / 8, rel=0.1)
    assert whole.allocated - one.allocated == pytest.approx(2 * weights * 7 / 8, rel=0.1)
    assert two.gradients < one.gradients / 2
    assert three.parameters == pytest.approx(weights / 8, rel=0.1)
    assert whole.allocated > one.allocated > two.allocated > three.allocated


def test_alone_nothing_is_shared_out(gpt: Workload):
    assert ADAM(gpt, Strategy(zero=3)) == ADAM(gpt, Strategy())


def test_ddp_has_buckets_beside_gradients_unless_these_are_views(heavy: Workload):
    weights = sum(each.num_bytes for each in heavy.parameters)
    alone, beside, views = (
        SGD(heavy, Strategy()),
        SGD(heavy, Strategy(data=2)),
        SGD(heavy, Strategy(data=2), views=True),
    )
    assert beside.communication == pytest.approx(weights, rel=0.02)
    assert beside.allocated - alone.allocated == pytest.approx(weights, rel=0.02)
    assert views.communication == 0
    assert views.allocated < beside.allocated


def test_local_sgd_averages_a_flat_copy_between_steps(heavy: Workload):
    weights = sum(each.num_bytes for each in heavy.parameters)
    peak = SGD(heavy, Strategy(data=2, exchange=Exchange.LOCAL, period=8))
    assert (peak.at, peak.communication) == ("optimizer step", pytest.approx(weights, rel=0.02))


def test_gradients_live_through_the_micro_batches_of_a_step(gpt: Workload):
    weights = sum(each.num_bytes for each in gpt.parameters)
    one, four, many = (SGD(gpt, Strategy(micro_batches=count)) for count in (1, 4, 64))
    assert four.allocated - one.allocated == pytest.approx(weights, rel=0.2)
    assert many.allocated == four.allocated


def test_stages_keep_activations_of_several_micro_batches(gpt: Workload):
    strategy = Strategy(micro_batches=8)
    one, two, four = (SGD(gpt, strategy, in_flight=count) for count in (1, 2, 4))
    assert four.activations - two.activations == pytest.approx(
        2 * (two.activations - one.activations), rel=0.1
    )
    few = (SGD(gpt, Strategy(micro_batches=2), in_flight=count) for count in (2, 4))
    assert next(few) == next(few)


def test_what_a_stage_is_sent_lives_only_as_long_as_it_is_needed(gpt: Workload):
    received = max(range(len(gpt.values)), key=lambda i: gpt.values[i].born == 0)
    values = list(gpt.values)
    values[received] = replace(values[received], born=-1)
    stage = replace(gpt, values=tuple(values))
    assert SGD(stage, Strategy()).allocated == SGD(gpt, Strategy()).allocated


def test_a_full_device_gives_cached_segments_back(heavy: Workload):
    free = ADAM(heavy, Strategy(), context_bytes=1 << 20)
    least = free.allocated + (18 << 20)
    tight = ADAM(heavy, Strategy(), context_bytes=1 << 20, device_bytes=least)
    assert tight.allocated == free.allocated
    assert tight.reserved <= least < free.reserved
    none = ADAM(heavy, Strategy(), device_bytes=1 << 20)
    assert none.reserved >= none.allocated


def test_blocks_run_again_before_their_backward_pass(gpt: Workload):
    again = checkpointed(gpt)
    found = units(gpt)
    forward = gpt.flops(TrainingPhase.FORWARD)
    blocks = sum(gpt.operators[i].flops for unit in found for i in unit.forward)
    assert 0.8 < blocks / forward < 1
    assert again.flops(TrainingPhase.FORWARD) == forward
    assert again.flops(TrainingPhase.BACKWARD) == gpt.flops(TrainingPhase.BACKWARD) + blocks
    assert [p.name for p in again.gradients()] == [p.name for p in gpt.gradients()]
    _check_lives(again)


class _Block(nn.Module):
    """A module whose output is also read by its own second layer."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.inner(x).relu()
        return self.outer(hidden), hidden


class _TwoHeads(nn.Module):
    """Two layers after blocks, which read an inner value of the last block."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(_Block() for _ in range(3))
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x
        for block in self.blocks:
            x, hidden = block(x)
        return x + self.first(hidden) + self.second(hidden)


@pytest.mark.parametrize("selective", [False, True])
def test_what_several_layers_read_behind_a_block_stays_for_the_last_of_them(selective: bool):
    plain = trace(_TwoHeads, lambda: (torch.zeros(32, 64),), name="heads", samples=32)
    again = checkpointed(plain, selective=selective)
    assert len(again.operators) > len(plain.operators)
    _check_lives(again)


def test_selective_checkpoints_keep_attention_and_half_of_products(gpt: Workload):
    none, selective, lazy, full = (
        SGD(gpt, Strategy()),
        SGD(gpt, Strategy(), selective=True),
        SGD(gpt, Strategy(), selective=True, compiled=True),
        SGD(gpt, Strategy(checkpoint=True)),
    )
    assert full.activations < lazy.activations < selective.activations < none.activations
    # Of a token and a block: results of attention, and half of 3 + 1 + 4 + 1 times the width.
    numbers = 8 * 128 * 128 * 4
    kept = checkpointed(gpt, selective=True)
    forward = sum(operator.phase is TrainingPhase.FORWARD for operator in kept.operators)
    attention = sum(v.num_bytes for v in kept.values if 0 <= v.born < forward < v.dies)
    again = checkpointed(gpt)
    least = sum(v.num_bytes for v in again.values if 0 <= v.born < forward < v.dies)
    assert (attention - least) / numbers == pytest.approx(4 * (1 + 4.5), rel=0.05)


def test_stages_keep_what_they_gathered_and_whole_sums_of_gradients(heavy: Workload):
    whole = sum(each.num_bytes for each in heavy.parameters)
    plain, staged = (
        SGD(heavy, Strategy(data=8, zero=3, pipeline=pipeline, micro_batches=4))
        for pipeline in (1, 2)
    )
    assert plain.communication < whole
    assert staged.communication >= whole
    assert staged.gradients == pytest.approx(whole, rel=0.3)


def test_a_loss_over_shared_classes_needs_one_more_tensor_of_them(gpt: Workload):
    logits = 8 * 127 * 512 * 4
    alone, shared = (SGD(gpt, Strategy(tensor=tensor)) for tensor in (1, 2))
    assert 0 < shared.allocated - alone.allocated <= 1.1 * logits


def _writers(workload: Workload, values: tuple[int, ...]) -> set[int]:
    return {workload.values[value].born for value in values}


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(), Strategy(checkpoint=True), Strategy(data=4, zero=1, micro_batches=3),
        Strategy(data=4, zero=3),
    ],
)  # fmt: skip
def test_a_replay_ends_where_more_is_needed_than_is_of_interest(
    gpt: Workload, heavy: Workload, strategy: Strategy
) -> None:
    for workload in (gpt, heavy):
        run = partial(ADAM, workload, strategy, fused=True)
        peak = run()
        assert run(most_bytes=peak.reserved) == peak
        for share in (0.999, 0.5, 0.01):
            with pytest.raises(FullError):
                run(most_bytes=share * peak.reserved)
