"""Gradient exchanges of single layers, tables and stages, compared with results by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from slipstream.forecast.hardware import load
from slipstream.forecast.search.machines import own
from slipstream.forecast.simulate.activation_exchange import ActivationExchange
from slipstream.forecast.simulate.compute import Rates
from slipstream.forecast.simulate.hybrid import HybridLayer, choose, layers, options, shared_out
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.trace import trace
from slipstream.forecast.work.embeddings import sparse
from slipstream.forecast.work.stages import stage
from slipstream.forecast.work.strategy import Agreement, Strategy
from slipstream.forecast.work.workload import TrainingPhase, Workload

LAYER = HybridLayer(name="w", forward=1, backward=5, rows=10, inputs=100, outputs=50, elements=5000)


def _two_layers(samples: int = 4, *, bias: bool = True) -> Workload:
    return trace(
        lambda: nn.Sequential(nn.Linear(16, 32, bias=bias), nn.ReLU(), nn.Linear(32, 8)),
        lambda: [torch.empty(samples, 16)], name="two", samples=samples,
    )  # fmt: skip


class _Table(nn.Module):
    """Return a workload with a table of 100 rows of 8 numbers before a product."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.score = nn.Embedding(100, 8), nn.Linear(8, 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.score(self.table(rows))


def _table(samples: int = 3) -> Workload:
    rows = torch.zeros(samples, dtype=torch.int64)
    return trace(_Table, lambda: [rows], name="table", samples=samples)


def test_numbers_that_go_over_the_wire():
    # Four replicas gather all factors, or gather all inputs and send the outputs back.
    assert LAYER.flops == 2 * 10 * 100 * 50
    assert LAYER.traffic(Agreement.FACTORS, 4) == (4 * 10 * 150, 0)
    assert LAYER.traffic(Agreement.SHARD, 4) == (4 * 10 * 100, 10 * 50)
    assert replace(LAYER, is_last=True).traffic(Agreement.SHARD, 4) == (4000, 0)


def test_a_layer_of_another_micro_batch_has_its_rows():
    larger = replace(LAYER, rows=20)
    found = [LAYER.between(larger, share).rows for share in (0.0, 0.5, 1.0, 2.0, -5.0)]
    assert found == [10, 15, 20, 30, 1]
    table, more = (replace(LAYER, outputs=size) for size in (50, 100))
    assert table.between(more, 3.0).outputs == 200


def test_options_take_their_share_of_the_wire():
    plain, factors, shard = options(LAYER, 4, 3e6, 1e-3, flops_per_second=1e9)
    # Three quarters of the gathered bytes come from other ranks; three steps have 3 ms of latency.
    assert plain.seconds == pytest.approx(2 * (0.75 * 5000 * 4 / 3e6 + 3e-3))
    late = 3 * 2 * 10 * 100 * 50 / 1e9
    assert factors.seconds == pytest.approx(0.75 * 6000 * 4 / 3e6 + 3e-3 + late)
    assert shard.seconds == pytest.approx(2 * (0.75 * 4500 * 4 / 3e6 + 3e-3))
    assert [each.choice for each in (plain, factors, shard)] == [
        None, Agreement.FACTORS, Agreement.SHARD,
    ]  # fmt: skip
    assert [each.num_bytes for each in (plain, factors, shard)] == [80000, 80000, 20000]


def test_what_hides_beside_the_backward_pass_costs_nothing_but_the_products():
    hidden = options(
        LAYER, 4, 3e6, 1e-3, flops_per_second=1e9, hidden=1.0, element=2, state_bytes=6
    )
    assert [each.seconds for each in hidden[:2]] == pytest.approx([0, 3e-4])
    # The exchange of a sharded layer is never hidden; its numbers have two bytes here.
    assert hidden[2].seconds == pytest.approx(2 * (0.75 * 4500 * 2 / 3e6 + 3e-3))
    assert [each.num_bytes for each in hidden] == [30000, 30000, 7500]


def test_no_layers_have_no_options():
    assert choose([], 1.0) == []


def test_products_and_tables_are_layers():
    first, last = layers(_two_layers())
    assert (first.name, first.rows, first.inputs, first.outputs) == ("0.weight", 4, 16, 32)
    assert (last.name, last.rows, last.inputs, last.outputs) == ("2.weight", 4, 32, 8)
    assert (first.elements, first.is_last, last.is_last) == (512, False, True)
    workload = _two_layers()
    for layer in (first, last):
        assert workload.operators[layer.forward].phase is TrainingPhase.FORWARD
        made = workload.operators[layer.backward]
        assert made.phase is TrainingPhase.BACKWARD
        # The gradient of a weight sums over the rows of a batch.
        assert [each.k for each in made.products] == [4]
    table, score = layers(_table())
    assert (table.name, table.rows, table.inputs, table.outputs) == ("table.weight", 1, 0, 24)
    assert (table.elements, table.is_last, score.is_last) == (800, False, True)


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_that_is_shared_out_leaves_its_share(bias: bool):
    workload = _two_layers(bias=bias)
    strategy = Strategy(data=4, layers=(("0.weight", Agreement.SHARD),))
    found = shared_out(workload, strategy)
    sizes = {each.name: (each.elements, each.num_bytes) for each in found.parameters}
    assert sizes["0.weight"] == (128, 512)
    assert sizes["2.weight"] == (256, 1024)
    before, after = (sum(v.num_bytes for v in w.values) for w in (workload, found))
    # The weight and its gradient keep a quarter of their 2048 bytes.
    assert before - after == 2 * 2048 * 3 // 4
    late = replace(strategy, layers=(("0.weight", Agreement.FACTORS),))
    assert shared_out(workload, late) is workload


def test_gradients_of_tables_are_the_rows_that_were_read():
    workload = _table()
    found = sparse(workload)
    assert found.names == {"table.weight"}
    sizes = {each.name: (each.elements, each.num_bytes) for each in found.workload.parameters}
    assert sizes == {"table.weight": (24, 96), "score.weight": (16, 64), "score.bias": (2, 8)}
    # The gradient is never larger than the table, even if the batch reads more rows.
    large = sparse(_table(200)).workload.parameters[0]
    assert (large.elements, large.num_bytes) == (800, 3200)
    moved = [
        (one.bytes_moved, two.bytes_moved)
        for one, two in zip(workload.operators, found.workload.operators, strict=True)
        if one != two
    ]
    # Gradients of three rows are moved three times, instead of the 3200 bytes of the table.
    assert [two for _, two in moved] == [3 * (3 * 8 * 4)]
    assert all(two < one for one, two in moved)


@pytest.mark.parametrize("tables", [2, 5])
def test_gradients_of_tables_are_their_own_rows_where_all_are_one_array(tables: int):
    class Concatenated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = torch.nn.ModuleList(torch.nn.Embedding(5000, 8) for _ in range(tables))

        def forward(self, indices: torch.Tensor) -> torch.Tensor:
            found = [table(indices[:, n]) for n, table in enumerate(self.tables)]
            return torch.cat(found, dim=1).square().mean()

    inputs = torch.zeros(64, tables, dtype=torch.long)
    workload = trace(Concatenated, lambda: (inputs,), name="tables", samples=64)
    moved = [
        each.bytes_moved
        for each in sparse(workload).workload.operators
        if each.phase is TrainingPhase.BACKWARD and "embedding" in each.name
    ]
    assert moved == [3 * 64 * 8 * 4] * tables


@pytest.mark.parametrize(("ranks", "longer"), [(4, 2.0), (16, 6.0)])
def test_a_late_product_has_longer_sums(ranks: int, longer: float):
    workload = _two_layers()
    passing = ActivationExchange.of(workload, (), {})
    cluster = own(load(), "H100", 1, None, None).cluster
    job = TrainingJob(
        workload=workload, rates=Rates(half_sum=8.0), cluster=cluster,
        strategy=Strategy(data=ranks, layers=(("0.weight", Agreement.FACTORS),)),
    )  # fmt: skip
    before = np.ones(len(workload.operators))
    changed = passing.repeated(job, before)
    at = passing.layers["0.weight"].backward
    # A replica has four rows, and a sum of length 8 reaches half of the rate of long sums.
    assert changed[at] == pytest.approx(longer)
    assert np.delete(changed, at) == pytest.approx(1.0)


def test_a_model_without_tables_has_no_sparse_gradients():
    workload = _two_layers()
    assert sparse(workload).names == frozenset()
    assert sparse(workload).workload == workload


def test_stages_divide_operators_and_parameters():
    workload = _two_layers()
    half = len(workload.operators) // 2
    places = [0 if 1 <= index < half else 1 for index in range(len(workload.operators))]
    parts = [stage(workload, places, number) for number in (0, 1)]
    assert [len(each.operators) for each in parts] == [half - 1, len(places) - half + 1]
    names = [parameter.name for each in parts for parameter in each.parameters]
    assert sorted(names) == sorted(each.name for each in workload.parameters)
    for number, part in enumerate(parts):
        mine = [index for index, place in enumerate(places) if place == number]
        for parameter in part.parameters:
            (before,) = (each for each in workload.parameters if each.name == parameter.name)
            assert mine[parameter.ready] == before.ready
        for value, before in zip(part.values, workload.values, strict=True):
            # Values of another stage exist when this stage starts.
            assert (value.born >= 0) == (before.born in mine)
            if value.born >= 0:
                assert mine[value.born] == before.born
            assert value.num_bytes in (0, before.num_bytes)
