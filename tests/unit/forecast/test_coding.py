"""Codecs of gradients, and samples that hosts read, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slipstream.forecast.hardware import load
from slipstream.forecast.search import machines
from slipstream.forecast.simulate.coding import coding_seconds, wire_bytes
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.work.strategy import Strategy
from slipstream.forecast.work.workload import Workload

WORKLOAD = Workload(name="none", samples=1, operators=(), values=(), parameters=(), buffer_bytes=0)
CLUSTER = machines.own(load(), "H100", 4, machines.ethernet(100)).cluster


def _job(codec: str, ranks: int = 8, gradient_bytes: int = 4) -> TrainingJob:
    strategy = Strategy(data=ranks, codec=codec)
    return TrainingJob(
        workload=WORKLOAD, strategy=strategy, cluster=CLUSTER, gradient_bytes=gradient_bytes
    )


@pytest.mark.parametrize(
    ("codec", "ranks", "gradient_bytes", "on_the_wire"),
    [
        ("none", 8, 4, 4),
        ("fp16", 8, 4, 2 + 1 / 512),
        ("bf16", 8, 4, 2),
        ("int8", 8, 4, 1 + 1 / 32),
        # A codec is not used if it saves nothing, nor within a host.
        ("fp16", 8, 2, 2),
        ("int8", 8, 2, 1 + 1 / 32),
        ("int8", 4, 4, 4),
        ("int8", 5, 4, 1 + 1 / 32),
    ],
)
def test_codecs_are_for_the_way_between_hosts(
    codec: str, ranks: int, gradient_bytes: int, on_the_wire: float
):
    job = _job(codec, ranks, gradient_bytes)
    assert wire_bytes(job) == pytest.approx(on_the_wire)
    assert (coding_seconds(1e9, job) > 0) == (on_the_wire < gradient_bytes)


@pytest.mark.parametrize(("codec", "rate"), [("fp16", 4.6e9), ("bf16", 5.4e9), ("int8", 5.6e9)])
def test_each_rank_of_a_host_codes_its_part(codec: str, rate: float):
    assert coding_seconds(1e9, _job(codec)) == pytest.approx(4e9 / 4 / rate)


def test_hosts_read_their_samples_beside_each_other():
    job = replace(_job("none", ranks=6), input_rate=100.0)
    # Six samples on two hosts, the second of which is half empty.
    assert job.input_seconds == pytest.approx(6 / 2 / 100)
    assert replace(job, input_rate=None).input_seconds == 0
