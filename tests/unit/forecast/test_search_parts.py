"""Parts of the search compared with exhaustive search: cuts, choices for layers, memory bounds."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from itertools import combinations, product

import pytest

pytest.importorskip("torch")
pytest.importorskip("pydantic")

from slipstream.errors import UsageError
from slipstream.forecast.hardware import load
from slipstream.forecast.memory import ReplayOptions, replay
from slipstream.forecast.search import machines
from slipstream.forecast.search.candidates import Allowed, ModelShape, micro_batches, strategies
from slipstream.forecast.search.memory_bound import in_flight
from slipstream.forecast.search.trials import Trials
from slipstream.forecast.simulate import parameters
from slipstream.forecast.simulate.hybrid import Option, choose
from slipstream.forecast.trace.architectures.causal import CausalDecoder, CausalSize
from slipstream.forecast.trace.module import trace
from slipstream.forecast.trace.precision import traced
from slipstream.forecast.work import experts
from slipstream.forecast.work.resize import resizable
from slipstream.forecast.work.stages import cuts, stage
from slipstream.forecast.work.strategy import Agreement, Optimizer, Strategy
from slipstream.forecast.work.workload import Workload


def _slowest(seconds: list[float], places: list[int]) -> float:
    return max(
        sum(each for each, place in zip(seconds, places, strict=True) if place == stage)
        for stage in set(places)
    )


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 9])
def test_cuts_make_the_slowest_stage_as_fast_as_can_be(stages: int):
    draw = random.Random(stages)
    for _ in range(20):
        seconds = [draw.random() ** 2 for _ in range(9)]
        places = cuts(seconds, stages)
        assert places == sorted(places)
        assert set(places) == set(range(stages))
        best = min(
            _slowest(seconds, [sum(at >= end for end in ends) for at in range(9)])
            for ends in combinations(range(1, 9), stages - 1)
        )
        assert _slowest(seconds, places) == pytest.approx(best)


def test_layers_get_the_best_options_that_fit_together():
    draw = random.Random(5)
    kinds = (None, Agreement.FACTORS, Agreement.SHARD)
    for _ in range(20):
        layers = [
            [Option(kind, draw.random(), 1 + draw.random() * 4) for kind in kinds] for _ in range(5)
        ]
        room = draw.uniform(9, 20)
        fitting = [
            sum(each.seconds for each in some)
            for some in product(*layers)
            if sum(each.num_bytes for each in some) <= room
        ]
        if not fitting:
            with pytest.raises(UsageError, match="layers need at least"):
                choose(layers, room)
            continue
        found = choose(layers, room)
        assert sum(each.num_bytes for each in found) <= room * (1 + 1e-6)
        assert sum(each.seconds for each in found) == pytest.approx(min(fitting))


def test_micro_batches_divide_and_are_near_powers_of_two():
    assert micro_batches(24) == [24, 12, 8, 4, 2, 1]
    for own in (1, 7, 24, 96, 1000):
        found = micro_batches(own)
        assert found == sorted(found, reverse=True)
        assert all(own % each == 0 for each in found)
        assert {1, own} <= set(found)


def _sparse(samples: int) -> Workload:
    import torch

    size = CausalSize(
        hidden=64, layers=2, heads=4, key_value_heads=4, head=16, inner=128, vocabulary=128,
        experts=8, active=2, gated=True,
    )  # fmt: skip
    tokens = partial(torch.zeros, samples, 16, dtype=torch.int64)
    return trace(lambda: CausalDecoder(size), lambda: (tokens(),), name="sparse", samples=samples)


def test_experts_that_are_shared_out_compute_as_much_in_all():
    whole = _sparse(4)
    assert experts.count(whole) == 8
    shared = experts.share(whole, 4)
    before = sum(op.flops for op in whole.operators)
    assert sum(op.flops for op in shared.workload.operators) == pytest.approx(before, rel=0.01)
    numbers = {each.name: each.elements for each in whole.parameters}
    for each in shared.workload.parameters:
        times = 4 if each.name in shared.names else 1
        assert each.elements * times == numbers[each.name]
    assert shared.names
    # Tokens are sent and return in both passes of both layers.
    assert len(shared.moves) == 8
    # Gradients of experts are divided too.
    sizes = [each.num_bytes for each in whole.parameters if each.name in shared.names]
    assert sum(
        value.num_bytes in sizes and value.dies < 0 for value in shared.workload.values
    ) < sum(value.num_bytes in sizes and value.dies < 0 for value in whole.values)


@pytest.mark.slow("parts of a search")
@pytest.mark.parametrize(
    ("name", "sizes", "inputs", "batch", "master"),
    [
        ("gpt2", {"hidden": 256, "heads": 4, "layers": 8}, {"length": 256}, 64, False),
        ("gpt2", {"hidden": 512, "heads": 8, "layers": 4}, {"length": 512}, 8, True),
        ("resnet18", {}, {}, 64, False),
    ],
)
def test_what_cannot_fit_is_never_more_than_what_is_replayed(
    name: str, sizes: dict[str, int], inputs: dict[str, int], batch: int, master: bool
):
    traces = partial(
        traced, name, sizes=sizes, inputs=inputs, precision="bf16" if master else "fp32",
        whole=master,
    )  # fmt: skip
    trials = Trials(
        resizable(traces), parameters.load(), precision="bf16" if master else "fp32",
        optimizer=Optimizer.ADAM, runtime="pytorch2", master=master,
    )  # fmt: skip
    machine = machines.own(load(), "A100", 8, None, None)
    candidates = list(strategies(trials.shape, 8, 8, batch, Allowed()))
    alone = list(strategies(trials.shape, 1, 1, batch, Allowed()))
    for each in [*random.Random(1).sample(candidates, 30), *alone]:
        assert trials.least(each) <= trials.peak(each, machine).allocated, each


@pytest.mark.parametrize("optimizer", [Optimizer.SGD, Optimizer.ADAM])
def test_what_fits_is_what_a_whole_replay_says(optimizer: Optimizer):
    sizes, inputs = {"hidden": 256, "heads": 4, "layers": 4}, {"length": 256}
    model = resizable(partial(traced, "gpt2", sizes=sizes, inputs=inputs))
    exact, quick = (
        Trials(
            model, parameters.load(), precision="fp32", optimizer=optimizer, runtime="pytorch2",
            master=False,
        )
        for _ in range(2)
    )  # fmt: skip
    whole = machines.own(load(), "A100", 8, None, None)
    candidates = list(strategies(exact.shape, 8, 8, 64, Allowed()))
    for strategy in random.Random(2).sample(candidates, 25):
        needed = exact.peak(strategy, whole).reserved
        for gib, does in ((0.6 * needed, False), (needed - 1, False), (needed, True)):
            device = whole.cluster.device.model_copy(update={"memory_gib": gib / 2**30})
            machine = replace(whole, cluster=replace(whole.cluster, device=device))
            assert quick.fits(strategy, machine) is does, (strategy, gib / needed)
            assert quick.known_fit(strategy, machine) is does


def test_steps_of_one_host_do_not_depend_on_its_network():
    model = resizable(partial(traced, "gpt2", sizes={"layers": 2}, inputs={"length": 128}))
    trials = Trials(
        model, parameters.load(), precision="fp32", optimizer=Optimizer.ADAM, runtime="pytorch2",
        master=False,
    )  # fmt: skip
    slow, fast = (
        machines.own(load(), "A100", 4, machines.network(load(), rate), None)
        for rate in ("10g", "100g")
    )
    one, two = Strategy(data=4), Strategy(data=8)
    assert trials.step(one, slow) == trials.step(one, fast)
    assert trials.step(two, slow).seconds > trials.step(two, fast).seconds
    for machine in (slow, fast):
        for strategy in (one, two):
            whole = trials.step(strategy, machine, every_micro_batch=True)
            assert trials.step(strategy, machine).seconds == pytest.approx(whole.seconds)


@pytest.mark.slow("parts of a search")
@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_fullest_rank_of_a_pipeline_is_found(checkpoint: bool):
    # Of eight stages of twelve blocks, those in the middle have two, the first and the last one.
    strategy = Strategy(pipeline=8, micro_batch=2, micro_batches=16, checkpoint=checkpoint)
    model = resizable(partial(traced, "vit-base-16", sizes={}, inputs={}))
    trials = Trials(
        model, parameters.load(), precision="fp32", optimizer=Optimizer.ADAM, runtime="pytorch2",
        master=False,
    )  # fmt: skip
    machine = machines.own(load(), "A100", 8, None, None)
    simulation = trials.simulation(strategy)
    whole = model.at(strategy.micro_batch)
    peaks = [
        replay(
            stage(whole, simulation.placement.rank_of.tolist(), rank),
            strategy,
            optimizer=Optimizer.ADAM,
            options=ReplayOptions(in_flight=in_flight(strategy, rank), fused=True),
        ).allocated
        for rank in range(simulation.placement.ranks)
    ]  # fmt: skip
    assert peaks.index(max(peaks)) not in (0, simulation.placement.ranks - 1)
    assert trials.peak(strategy, machine).allocated == max(peaks)


def test_all_degrees_multiply_to_all_ranks():
    shape = ModelShape(blocks=12, divides=lambda tensor: 12 % tensor == 0, experts=8, tokens=32768)
    found = list(strategies(shape, 16, 4, 32, Allowed()))
    assert {each.ranks for each in found} == {16}
    assert {each.global_batch for each in found} == {32}
    for name, values in {
        "tensor": {1, 2, 4}, "context": {1, 2, 4, 8, 16}, "pipeline": {1, 2, 4, 8},
        "expert": {1, 2, 4, 8}, "zero": {0, 1, 2, 3}, "checkpoint": {False, True},
    }.items():  # fmt: skip
        assert {getattr(each, name) for each in found} == values, name
