"""All rewrites together: what they leave alone, what they report, how they are switched off."""

from __future__ import annotations

import pytest

from slipstream.errors import UsageError
from slipstream.infer.rewrites import REWRITES, Applied, optimise


@pytest.fixture
def graph(build):
    """Silu of an Identity."""
    return build("(float[4] x) => (float[4] y) { i = Identity(x) g = Sigmoid(i) y = Mul(i, g) }")


def test_the_graph_itself_stays_as_it_is(graph):
    before = [(node.op, list(node.inputs), list(node.outputs)) for node in graph.nodes]
    optimise(graph)
    after = [(node.op, list(node.inputs), list(node.outputs)) for node in graph.nodes]
    assert after == before


def test_report_names_every_rewrite_and_what_it_saved(graph):
    _, applied = optimise(graph)
    assert [item.name for item in applied] == [item.name for item in REWRITES]
    found = {item.name: item for item in applied}
    assert found["identities"] == Applied("identities", 1, 3, 2)
    assert found["silu"] == Applied("silu", 1, 2, 1)
    assert found["attention"] == Applied("attention", 0, 1, 1)


def test_a_rewrite_left_out_is_not_reported(graph):
    result, applied = optimise(graph, without=["silu"])
    assert [node.op for node in result.nodes] == ["Sigmoid", "Mul"]
    assert "silu" not in [item.name for item in applied]


def test_everything_can_be_left_out(graph):
    result, applied = optimise(graph, without=[item.name for item in REWRITES])
    assert len(result.nodes) == 3
    assert applied == ()


def test_unknown_name_is_refused_with_those_that_exist(graph):
    with pytest.raises(UsageError, match=r"'sliu'.*constants, .*silu") as caught:
        optimise(graph, without=["silu", "sliu"])
    assert all(item.name in str(caught.value) for item in REWRITES)


def test_old_operators_are_refused(build):
    graph = build("(float[4] x) => (float[4] y) { y = Exp(x) }", opset=12)
    with pytest.raises(UsageError, match=r"version 12 .* 13 or later"):
        optimise(graph)


def test_names_are_unique_and_each_says_what_it_does():
    names = [item.name for item in REWRITES]
    assert len(set(names)) == len(names)
    assert all(item.effect for item in REWRITES)


def test_optimising_twice_finds_nothing_more(graph):
    _, applied = optimise(optimise(graph)[0])
    assert sum(item.matches for item in applied) == 0
