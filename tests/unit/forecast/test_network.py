"""Seconds of collectives and messages, by hand: latency and rate of each dimension."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slipstream.forecast.hardware import Link, load
from slipstream.forecast.simulate.network import (
    Cluster,
    Dimension,
    WireRates,
    all_reduce,
    all_to_all,
    dimensions,
    reduce_scatter,
    send,
)

# Half of 200 GB/s inside of a host and a quarter of 40 GB/s between hosts are reached.
WIRE = WireRates(inside=0.5, between=0.25, launch_us=10.0, ramp_us=0.0)
INSIDE = Link(name="in", kind="device", gbyte_per_s=200, latency_us=2, source="")
BETWEEN = Link(name="out", kind="network", gbyte_per_s=40, latency_us=30, source="")
CLUSTER = Cluster(device=load().device("H100"), per_host=4, inside=INSIDE, between=BETWEEN)
INNER, OUTER = Dimension(4, 100e9, 2e-6), Dimension(2, 10e9, 30e-6)


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [
        (1, 1, []),
        (2, 1, [(2, 100e9, 2e-6)]),
        (4, 1, [(4, 100e9, 2e-6)]),
        # Four ranks of a host share its 10 GB/s; the last host may have fewer ranks.
        (5, 1, [(4, 100e9, 2e-6), (2, 2.5e9, 30e-6)]),
        (12, 1, [(4, 100e9, 2e-6), (3, 2.5e9, 30e-6)]),
        (4, 2, [(2, 100e9, 2e-6), (2, 2.5e9, 30e-6)]),
        (2, 4, [(2, 2.5e9, 30e-6)]),
        (3, 8, [(3, 2.5e9, 30e-6)]),
    ],
)
def test_ranks_fill_a_host_before_the_next(
    size: int, stride: int, expected: list[tuple[int, float, float]]
):
    found = dimensions(CLUSTER, WIRE, size, stride)
    assert [(each.size, each.rate, each.latency) for each in found] == [
        pytest.approx(each) for each in expected
    ]


def test_devices_without_a_switch_reach_a_share_of_their_links():
    wired = replace(CLUSTER, inside=INSIDE.model_copy(update={"among": {2: 0.25, 4: 1.0}}))
    for size, stride, rate in ((2, 1, 25e9), (4, 1, 100e9), (2, 2, 100e9)):
        (found,) = dimensions(wired, WIRE, size, stride)
        assert found.rate == pytest.approx(rate)


def test_more_ranks_than_a_lone_host_has_are_refused():
    alone = replace(CLUSTER, between=None)
    assert len(dimensions(alone, WIRE, 4)) == 1
    with pytest.raises(ValueError, match="5 ranks at a distance of 1 need several hosts"):
        dimensions(alone, WIRE, 5)


def test_nobody_sends_to_himself():
    for of in (reduce_scatter, all_reduce, all_to_all):
        assert of(1e9, (), WIRE) == 0


def test_a_reduce_scatter_is_as_slow_as_its_slowest_dimension():
    # Three quarters of 4 GB at 100 GB/s; then half of 1 GB at 10 GB/s.
    inner, outer = 0.03, 0.05
    assert reduce_scatter(4e9, (INNER,), WIRE) == pytest.approx(10e-6 + inner + 3 * 2e-6)
    both = reduce_scatter(4e9, (INNER, OUTER), WIRE)
    assert both == pytest.approx(10e-6 + outer + 3 * 2e-6 + 30e-6)
    # Links fill while the ring goes round: (size - 1) / size of the ramp in each dimension.
    ramp = replace(WIRE, ramp_us=8.0)
    assert reduce_scatter(4e9, (INNER, OUTER), ramp) - both == pytest.approx(10e-6, rel=1e-4)


def test_an_all_reduce_is_two_rings_with_one_launch_or_doubling():
    rings = 2 * (0.03 + 3 * 2e-6) + 10e-6
    assert all_reduce(4e9, (INNER,), WIRE) == pytest.approx(rings)
    # One byte takes two rounds of doubling among four ranks and one round among two.
    assert all_reduce(1, (INNER, OUTER), WIRE) == pytest.approx(10e-6 + 2 * 2e-6 + 30e-6, rel=1e-4)
    # Three ranks double in two rounds too: 10 kB take 0.1 us in each.
    three = all_reduce(10e3, (Dimension(3, 100e9, 2e-6),), WIRE)
    assert three == pytest.approx(10e-6 + 2 * (2e-6 + 0.1e-6))


@pytest.mark.parametrize(
    ("ramp_us", "graph_us"), [(570.0, 27 + 2 * 7 / 8 * 50), (20.0, 27 + 2 * 7 / 8 * 20)]
)
def test_rings_of_a_graph_are_full_soon(ramp_us: float, graph_us: float):
    wire = WireRates(launch_us=27.0, ramp_us=ramp_us).in_graph()
    # A reduce-scatter and an all-gather, with one launch, of hardly any bytes.
    seconds = 2 * reduce_scatter(1e3, (Dimension(8, 1e12, 0.0),), wire) - 27e-6
    assert seconds == pytest.approx(graph_us * 1e-6, rel=1e-3)


@pytest.mark.parametrize(("hosts", "rings"), [(2, False), (64, False), (512, False), (64, True)])
def test_switches_that_add_take_what_each_host_has_once(hosts: int, rings: bool):
    group = (INNER, Dimension(hosts, 10e9, 30e-6, adds=not rings))
    # A quarter of 4 GB at 10 GB/s, which is more than twice three quarters at 100 GB/s.
    once = 10e-6 + 0.1 + 2 * 30e-6
    assert (all_reduce(4e9, group, WIRE) == pytest.approx(once)) != rings
    alone = all_reduce(4e9, group[1:], WIRE)
    assert (alone == pytest.approx(10e-6 + 0.4 + 2 * 30e-6)) != rings


def test_an_all_to_all_sends_each_dimension_what_is_for_its_ranks():
    # Seven other ranks exist: three on the same host and four on the other host.
    inner, outer = 8e9 * 3 / 8 / 100e9, 8e9 * 4 / 8 / 10e9
    assert all_to_all(8e9, (INNER,), WIRE) == pytest.approx(8e9 * 3 / 4 / 100e9 + 12e-6)
    assert all_to_all(8e9, (INNER, OUTER), WIRE) == pytest.approx(max(inner, outer) + 42e-6)
    assert all_to_all(0, (INNER, OUTER), WIRE) == pytest.approx(42e-6)


@pytest.mark.parametrize(
    ("stride", "seconds"),
    [(1, 12e-6 + 0.01), (3, 12e-6 + 0.01), (4, 40e-6 + 0.4), (9, 40e-6 + 0.4)],
)
def test_a_message_goes_to_another_host_from_a_hosts_ranks_on(stride: int, seconds: float):
    assert send(1e9, CLUSTER, WIRE, stride) == pytest.approx(seconds)
    alone = replace(CLUSTER, between=None)
    assert send(1e9, alone, WIRE, stride) == pytest.approx(12e-6 + 0.01)
