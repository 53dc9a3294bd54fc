"""Limits of a step, properties of a plan, and sums over a workload."""

from __future__ import annotations

from dataclasses import fields

import pytest

from slipstream.forecast.hardware import load
from slipstream.forecast.search import machines
from slipstream.forecast.search.intervals import group_of
from slipstream.forecast.search.plan import MemoryFit, limit_of
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.work.strategy import Strategy
from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    Product,
    TrainedParameter,
    TrainingPhase,
    Workload,
)

T4 = machines.own(load(), "T4", 1)


def _step(**parts: float) -> SimulatedStep:
    none = dict.fromkeys((each.name for each in fields(SimulatedStep) if each.name != "spans"), 0.0)
    return SimulatedStep(**(none | parts), spans=())


@pytest.mark.parametrize(
    ("parts", "limit"),
    [
        ({"compute": 4, "moved": 2, "host": 3}, "compute"),
        ({"compute": 4, "moved": 2.1, "host": 3}, "memory bandwidth"),
        ({"compute": 4, "moved": 4, "host": 5}, "host"),
        ({"compute": 4, "tensor": 2, "exchange": 3}, "network"),
        ({"compute": 4, "tensor": 2, "exchange": 1}, "compute"),
        ({"compute": 4, "bubble": 5, "optimizer": 9}, "pipeline bubble"),
        ({"compute": 4, "input": 5}, "input"),
    ],
)
def test_the_largest_part_of_a_step_limits_it(parts: dict[str, float], limit: str):
    assert limit_of(_step(**parts)) == limit


@pytest.mark.parametrize(("more", "does"), [(0, True), (1, False)])
def test_what_takes_all_of_the_memory_fits(more: int, does: bool):
    num_bytes = T4.cluster.device.memory_gib * 2**30 + more
    fit = MemoryFit(
        machine=T4, hosts=1, strategy=Strategy(), num_bytes=num_bytes, is_least=False, remedies=()
    )
    assert fit.fits == does


def _workload(*kinds: tuple[OperatorKind, float]) -> Workload:
    operators = tuple(
        Operator(
            name="op", module="", phase=phase, kind=kind, bytes_moved=1.0, dtype="float32",
            products=(Product(2, 3, 5, 7, fill=fill),) * count, reads=(), writes=(),
        )
        for kind, fill in kinds
        for phase, count in ((TrainingPhase.FORWARD, 1), (TrainingPhase.BACKWARD, 2))
    )  # fmt: skip
    parameters = tuple(
        TrainedParameter(name=name, elements=elements, num_bytes=4 * elements, ready=ready)
        for name, elements, ready in (("a", 5, 7), ("b", 6, -1), ("c", 7, 0), ("d", 8, 7))
    )
    return Workload(
        name="some", samples=1, operators=operators, values=(), parameters=parameters,
        buffer_bytes=0,
    )  # fmt: skip


def test_a_workload_sums_its_operators_and_parameters():
    workload = _workload((OperatorKind.PRODUCT, 1.0), (OperatorKind.CONVOLUTION, 0.5))
    # FLOPs that a kernel skips, such as masked scores, are counted.
    assert workload.flops(TrainingPhase.FORWARD) == 2 * 420
    assert workload.flops(TrainingPhase.BACKWARD) == 4 * 420
    assert workload.num_parameters == 26
    assert [each.name for each in workload.gradients()] == ["c", "a", "d"]


@pytest.mark.parametrize(
    ("kinds", "group"),
    [
        ([(OperatorKind.ATTENTION, 0.5), (OperatorKind.ATTENTION, 1.0)], "language"),
        ([(OperatorKind.ATTENTION, 1.0), (OperatorKind.CONVOLUTION, 1.0)], "encoder"),
        ([(OperatorKind.GATHER, 1.0), (OperatorKind.CONVOLUTION, 1.0)], "image"),
        ([(OperatorKind.PRODUCT, 1.0), (OperatorKind.GATHER, 1.0)], "tables"),
        ([(OperatorKind.PRODUCT, 1.0)], ""),
    ],
)
def test_models_are_told_apart_by_their_operators(
    kinds: list[tuple[OperatorKind, float]], group: str
):
    assert group_of(_workload(*kinds)) == group
