"""Buckets of gradients and the duration of their exchange, compared with results by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slipstream.forecast.hardware import Link, load
from slipstream.forecast.simulate.compute import Runtime
from slipstream.forecast.simulate.gradients import (
    GradientBucket,
    GradientExchange,
    PassTimes,
    bucket_seconds,
    gathered,
    is_apart,
    replicas,
    served,
)
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.network import Cluster, WireRates, all_reduce, reduce_scatter
from slipstream.forecast.simulate.resources import Resources
from slipstream.forecast.work.strategy import Agreement, Exchange, Strategy
from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    TensorValue,
    TrainedParameter,
    TrainingPhase,
    Workload,
)

WIRE = WireRates(inside=1.0, between=1.0, launch_us=0.0, ramp_us=0.0)
INSIDE = Link(name="in", kind="device", gbyte_per_s=100, latency_us=1e-6, source="")
BETWEEN = Link(name="out", kind="network", gbyte_per_s=10, latency_us=50.0, source="")
CLUSTER = Cluster(device=load().device("H100"), per_host=2, inside=INSIDE, between=BETWEEN)
# Parameter n is read by operator n, and its gradient is made by operator 5 - n.
ELEMENTS = (10, 20, 30)


def _operator(phase: TrainingPhase, reads: tuple[int, ...]) -> Operator:
    return Operator(
        name="op", module="", phase=phase, kind=OperatorKind.MEMORY, products=(),
        reads=reads, writes=(), bytes_moved=0.0, dtype="float32",
    )  # fmt: skip


WORKLOAD = Workload(
    name="three", samples=1, buffer_bytes=0,
    operators=(
        *(_operator(TrainingPhase.FORWARD, (n,)) for n in range(3)),
        *(_operator(TrainingPhase.BACKWARD, (n,)) for n in (2, 1, 0)),
    ),
    values=tuple(TensorValue(4 * each, -1, -1) for each in ELEMENTS),
    parameters=tuple(
        TrainedParameter(name=f"p{n}", elements=each, num_bytes=4 * each, ready=5 - n, value=n)
        for n, each in enumerate(ELEMENTS)
    ),
)  # fmt: skip


def _job(runtime: Runtime | None = None, **strategy: Any) -> TrainingJob:
    return TrainingJob(
        workload=WORKLOAD, strategy=Strategy(**strategy), cluster=CLUSTER, wire=WIRE,
        runtime=runtime or Runtime(overlap=1.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (1, [(30, 3, 2), (20, 4, 1), (10, 5, 0)]),
        # A bucket of 120 bytes is full with 30 numbers, one of 121 bytes is not.
        (120, [(30, 3, 2), (30, 5, 0)]),
        (121, [(50, 4, 1), (10, 5, 0)]),
        (1000, [(60, 5, 0)]),
    ],
)
def test_a_bucket_is_full_from_its_bytes_on(num_bytes: int, expected: list[tuple[int, int, int]]):
    found = GradientExchange(WORKLOAD, [0] * 6, frozenset()).buckets(0, num_bytes, frozenset())
    assert [(each.numbers, each.ready, each.needed) for each in found] == expected
    assert not any(each.shared for each in found)


def test_experts_have_buckets_of_their_own_and_what_is_apart_has_none():
    gradients = GradientExchange(WORKLOAD, [0] * 6, frozenset({"p1"}))
    found = gradients.buckets(0, 1000, frozenset())
    assert found == [GradientBucket(20, 4, 1, shared=True), GradientBucket(40, 5, 0, shared=False)]
    assert gradients.buckets(0, 1000, frozenset({"p0"})) == [
        GradientBucket(30, 3, 2, shared=False),
        GradientBucket(20, 4, 1, shared=True),
    ]


def test_each_rank_of_a_pipeline_has_its_own_gradients():
    gradients = GradientExchange(WORKLOAD, [0, 0, 1, 1, 0, 0], frozenset())
    assert gradients.buckets(0, 1000, frozenset()) == [GradientBucket(30, 5, 0, shared=False)]
    assert gradients.buckets(1, 1000, frozenset()) == [GradientBucket(30, 3, 2, shared=False)]


def test_ranks_with_the_same_parameters_are_replicas():
    found = replicas(_job(data=8))
    assert [each.size for each in found] == [2, 4]
    assert [each.size for each in replicas(_job(data=4, tensor=2))] == [4]
    assert [each.size for each in replicas(_job(data=2, context=4))] == [2, 4]
    # Two of four replicas divide the experts, so their equals are on another host.
    assert [each.size for each in replicas(_job(data=4, expert=2), shared=True)] == [2]
    assert replicas(_job(data=4, expert=4), shared=True) == ()


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_a_bucket_is_summed_or_scattered(zero: int):
    job = _job(data=4, zero=zero)
    bucket = GradientBucket(1e6, 0, 0, shared=False)
    way = reduce_scatter if zero else all_reduce
    assert bucket_seconds(job, bucket) == pytest.approx(way(4e6, replicas(job), WIRE))
    updated = reduce_scatter(4e6, replicas(job), WIRE) if zero else 0.0
    assert gathered(job, 1e6) == pytest.approx(updated)
    assert gathered(_job(data=4, zero=3), 1e6) == 0


@pytest.mark.parametrize(("pipeline", "gathers"), [(1, False), (2, True), (4, True)])
def test_stages_gather_what_is_shared_out_once(pipeline: int, gathers: bool):
    job = _job(data=4, zero=3, pipeline=pipeline)
    once = reduce_scatter(4e6, replicas(job), WIRE)
    assert gathered(job, 1e6) == pytest.approx(once if gathers else 0.0)


def test_a_codec_that_is_slower_than_the_wire_sets_the_seconds():
    # 4e6 bytes between two ranks of a host, at 4.6 GB/s; half of them go over the wire in 0.3 ms.
    found = bucket_seconds(_job(data=4, codec="fp16"), GradientBucket(1e6, 0, 0, shared=False))
    assert found == pytest.approx(4e6 / 2 / 4.6e9)


@pytest.mark.parametrize(
    ("data", "servers", "seconds"),
    [
        # Devices send to their host and back at 12 GB/s, and the host adds at the same rate.
        (1, 0, 0.0),
        (2, 0, 2 * 1e9 / 12e9),
        # Each of four hosts serves a quarter: 3 quarters go out and come back, at 10 GB/s.
        (8, 0, 1 / 6 + 1e9 * (3 / 4 + 3 / 4) / 10e9 + 100e-6),
        # One host serves: it sends everything to three hosts, and adding four takes longer, 1 / 3
        # s.
        (8, 1, 1 / 6 + 4 / 12 + 100e-6),
        (8, 2, 1 / 6 + 1e9 * (3 / 2 + 1 / 2) / 10e9 + 100e-6),
        (8, 9, 1 / 6 + 1e9 * (3 / 4 + 3 / 4) / 10e9 + 100e-6),
    ],
)
def test_hosts_that_serve(data: int, servers: int, seconds: float):
    job = _job(data=data, exchange=Exchange.PARAMETER_SERVER, servers=servers)
    assert served(1e9, job) == pytest.approx(seconds)
    bucket = GradientBucket(0.25e9, 0, 0, shared=False)
    assert bucket_seconds(job, bucket) == pytest.approx(seconds)


@pytest.mark.parametrize(("gbyte", "seconds"), [(100, 4 / 12), (12, 4 / 12), (5, 2 / 5)])
def test_a_host_adds_what_its_devices_send_as_fast_as_it_comes(gbyte: float, seconds: float):
    inside = INSIDE.model_copy(update={"gbyte_per_s": gbyte})
    cluster = replace(CLUSTER, per_host=4, inside=inside)
    job = replace(_job(data=4, exchange=Exchange.PARAMETER_SERVER), cluster=cluster)
    assert served(1e9, job) == pytest.approx(seconds)


@pytest.mark.parametrize(("gbyte", "seconds"), [(100, 2 / 4 / 12), (20, 2 * 0.75 / 20)])
def test_devices_add_before_their_host_has_gradients(gbyte: float, seconds: float):
    inside = INSIDE.model_copy(update={"gbyte_per_s": gbyte})
    cluster = replace(CLUSTER, per_host=4, inside=inside)
    job = _job(Runtime(sums=True), data=4, exchange=Exchange.PARAMETER_SERVER)
    assert served(1e9, replace(job, cluster=cluster)) == pytest.approx(seconds)


@pytest.mark.parametrize(("servers", "seconds"), [(0, 0.1), (4, 0.1), (2, 0.2), (1, 0.4)])
def test_hosts_that_serve_alone_send_what_they_have_once(servers: int, seconds: float):
    cluster = replace(CLUSTER, per_host=1)
    job = _job(Runtime(sums=True), data=4, exchange=Exchange.PARAMETER_SERVER, servers=servers)
    # 1e9 bytes of four hosts at 10e9 a second, and adding them is faster.
    assert served(1e9, replace(job, cluster=cluster)) == pytest.approx(seconds, rel=1e-2)


def test_a_parameter_is_apart_if_it_is_shared_out():
    job = _job(data=4, layers=(("p0", Agreement.SHARD), ("p1", Agreement.FACTORS)))
    assert [is_apart(job, name) for name in ("p0", "p1", "p2")] == [True, False, False]


def _rank(seconds: float = 1.0) -> PassTimes:
    """Return the times of a rank whose three backward operators end one after the other, at 10."""
    start = 10 - 3 * seconds
    after = np.array([0, 0, 0, 1, 2, 3]) * seconds
    return PassTimes(start, 10.0, after, np.array([1, 2, 3, 0, 0, 0]) * seconds)


def _exchange(
    job: TrainingJob, rank: PassTimes | None = None
) -> tuple[float, list[tuple[str, float, float]]]:
    queues = Resources()
    gradients = GradientExchange(WORKLOAD, [0] * 6, frozenset())
    end = gradients.exchange(job, [rank or _rank()], queues)
    assert {span.queue for span in queues.spans} <= {"network 0"}
    return end, [(span.name, span.start, span.end) for span in queues.spans]


def _seconds(job: TrainingJob, numbers: float) -> float:
    return bucket_seconds(job, GradientBucket(numbers, 0, 0, shared=False))


def test_one_replica_exchanges_nothing():
    assert _exchange(_job()) == (0.0, [])


def test_buckets_go_when_they_are_whole_and_what_does_not_overlap_at_the_end():
    job = _job(Runtime(overlap=0.75), data=4, bucket_bytes=1)
    each = [_seconds(job, numbers) for numbers in (30, 20, 10)]
    end, spans = _exchange(job)
    assert [name for name, _, _ in spans] == ["all-reduce"] * 4
    assert [start for _, start, _ in spans] == pytest.approx([8, 9, 10, 10 + 0.75 * each[2]])
    assert [end - start for _, start, end in spans] == pytest.approx(
        [*(0.75 * seconds for seconds in each), 0.25 * sum(each)]
    )
    assert end == pytest.approx(10 + 0.75 * each[2] + 0.25 * sum(each))


@pytest.mark.parametrize(("exchange", "zero", "word"), [
    (Exchange.ALL_REDUCE, 0, "all-reduce"), (Exchange.ALL_REDUCE, 1, "reduce-scatter"),
    (Exchange.PARAMETER_SERVER, 0, "parameter server"),
])  # fmt: skip
def test_what_is_sent_has_its_word(exchange: Exchange, zero: int, word: str):
    _, spans = _exchange(_job(data=4, exchange=exchange, zero=zero))
    assert {name for name, _, _ in spans} == {word}


def test_local_sgd_averages_now_and_then():
    job = _job(data=4, exchange=Exchange.LOCAL, period=4)
    end, spans = _exchange(job)
    assert spans == [("average", 10.0, end)]
    assert end - 10 == pytest.approx(_seconds(job, 60) / 4)


def test_each_micro_batch_scatters_its_gradients_if_these_are_shared_out():
    slow, fast = 1e-6, 100.0
    whole = _seconds(_job(data=4, zero=2), 60)
    for seconds, late in ((slow, whole * 0.75 - 3e-6), (fast, 0.0)):
        one, three = (
            _exchange(_job(Runtime(overlap=0.75), data=4, zero=2, micro_batches=count),
                      _rank(seconds))[0]
            for count in (1, 3)
        )  # fmt: skip
        assert one == pytest.approx(10 + whole)
        assert three - one == pytest.approx(2 * (whole * 0.25 + late), rel=1e-4, abs=1e-9)


def test_what_the_next_forward_pass_needs_late_may_come_late():
    job = _job(data=4, bucket_bytes=1, across=True)
    each = [_seconds(job, numbers) for numbers in (30, 20, 10)]
    # The backward pass of 3 us ends before the second bucket can be sent.
    end, spans = _exchange(job, _rank(1e-6))
    assert [name for name, _, _ in spans] == ["all-reduce"] * 3
    # The first bucket is of the last layer; then come those of the first and of the second.
    order = [each[0], each[2], each[1]]
    assert [end - start for _, start, end in spans] == pytest.approx(order, rel=1e-6)
    first = 10 - 2e-6 + each[0] + each[2]
    second = first + each[1] - 1e-6
    assert end == pytest.approx(max(first, second), abs=1e-9)
