"""Strategies that are worth a simulation, at the limits of each degree."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.forecast.search.candidates import (
    Allowed,
    ModelShape,
    micro_batches,
    powers,
    refinements,
    strategies,
)
from slipstream.forecast.work.strategy import Agreement, Exchange, Strategy


def _shape(blocks: int = 1, most_tensor: int = 1, experts: int = 1, tokens: int = 0) -> ModelShape:
    return ModelShape(
        blocks=blocks, divides=lambda tensor: tensor <= most_tensor, experts=experts, tokens=tokens
    )


def _found(shape: ModelShape, ranks: int, per_host: int, batch: int) -> list[Strategy]:
    return list(strategies(shape, ranks, per_host, batch, Allowed()))


@pytest.mark.parametrize(("most", "found"), [(0, []), (1, [1]), (7, [1, 2, 4]), (8, [1, 2, 4, 8])])
def test_powers_of_two(most: int, found: list[int]):
    assert list(powers(most)) == found


@pytest.mark.parametrize(
    ("own", "found"),
    # The smaller of equally near divisors is taken: 3 and 5 are equally near to 4.
    [(1, [1]), (6, [6, 3, 2, 1]), (7, [7, 1]), (12, [12, 6, 4, 2, 1]), (15, [15, 5, 3, 1])],
)
def test_micro_batches_are_divisors_near_powers_of_two(own: int, found: list[int]):
    assert micro_batches(own) == found


def test_replicas_share_states_out_and_a_lone_device_does_not():
    trades = {(each.zero, each.checkpoint) for each in _found(_shape(), 2, 2, 2)}
    assert trades == {(zero, again) for zero in range(4) for again in (False, True)}
    alone = {(each.zero, each.checkpoint) for each in _found(_shape(), 1, 1, 2)}
    assert alone == {(0, False), (0, True)}


def test_the_batch_is_divided_by_the_replicas():
    assert _found(_shape(), 4, 4, 6) == []
    found = {(each.micro_batch, each.micro_batches) for each in _found(_shape(), 2, 2, 8)}
    assert found == {(4, 1), (2, 2), (1, 4)}


@pytest.mark.parametrize(
    ("per_host", "most_tensor", "found"),
    [(16, 64, {1, 2, 4, 8}), (4, 64, {1, 2, 4}), (6, 64, {1, 2}), (8, 2, {1, 2}), (8, 1, {1})],
)
def test_tensor_ranks_are_of_one_host_and_eight_at_most(
    per_host: int, most_tensor: int, found: set[int]
):
    shape = _shape(most_tensor=most_tensor, tokens=8)
    every = _found(shape, per_host * 8, per_host, per_host * 8)
    assert {each.tensor for each in every} == found
    assert all(each.sequence == (each.tensor > 1) for each in every)
    # Without attention there are no sequences to divide.
    apart = _found(_shape(most_tensor=most_tensor), per_host * 8, per_host, per_host * 8)
    assert not any(each.sequence for each in apart)


@pytest.mark.parametrize(
    ("tokens", "batch", "found"),
    [
        # Each rank has at least 2048 tokens, and sequences are divided from 16384 tokens on.
        (16384, 8, {1, 2, 4, 8}),
        (16383, 8, {1}),
        # Eight ranks are too many for four samples, because four replicas exceed half of the
        # samples.
        (4096, 4, {2}),
        (4095, 4, set()),
        (8192, 4, {2}),
        (8192, 2, {4}),
    ],
)
def test_long_sequences_are_shared_and_others_where_samples_are_too_few(
    tokens: int, batch: int, found: set[int]
):
    every = _found(_shape(tokens=tokens), 8, 8, batch)
    assert {each.context for each in every} == found
    assert all(each.ranks == 8 for each in every)


def test_all_ranks_are_used():
    every = _found(_shape(blocks=4, most_tensor=4, tokens=16384), 12, 12, 12)
    assert {(each.tensor, each.context, each.pipeline) for each in every} == {
        (1, 1, 1), (1, 1, 2), (1, 1, 4), (1, 2, 1), (1, 2, 2), (1, 4, 1), (2, 1, 1), (2, 1, 2),
        (2, 2, 1), (4, 1, 1),
    }  # fmt: skip
    assert {each.ranks for each in every} == {12}


def test_stages_are_at_most_the_blocks_and_have_micro_batches_enough():
    every = _found(_shape(blocks=6), 8, 8, 8)
    assert {each.pipeline for each in every} == {1, 2, 4}
    for each in every:
        assert each.micro_batches >= each.pipeline or each.pipeline == 1
        assert each.zero <= 1 or each.pipeline == 1
    assert any(each.micro_batches == each.pipeline == 4 for each in every)


@pytest.mark.parametrize(
    ("experts", "data", "found"),
    [(1, 8, {1}), (2, 2, {1, 2}), (8, 8, {1, 2, 4, 8}), (6, 8, {1, 2}), (8, 2, {1, 2})],
)
def test_experts_are_shared_by_powers_of_two(experts: int, data: int, found: set[int]):
    every = _found(_shape(experts=experts), data, data, data)
    assert {each.expert for each in every} == found


def _refined(
    hosts: int = 1, blocks: int = 1, allowed: Allowed | None = None, **strategy: Any
) -> list[list[Strategy]]:
    found = refinements(Strategy(**strategy), _shape(blocks), hosts, allowed or Allowed())
    return [ways for ways in found if ways]


def test_stages_take_turns_where_blocks_and_micro_batches_allow_it():
    for blocks, count, turns in ((7, 8, []), (8, 8, [2]), (16, 8, [2, 4]), (16, 6, [])):
        found = refinements(Strategy(pipeline=4, micro_batches=count), _shape(blocks), 1, Allowed())
        assert [each.virtual for each in found[0]] == turns
    assert _refined(blocks=16) == []


def test_replicas_try_buckets_and_go_on_across_steps():
    buckets, across = _refined(data=2)
    assert [each.bucket_bytes >> 20 for each in buckets] == [4, 25, 100]
    assert across == [Strategy(data=2, across=True)]
    assert len(_refined(data=2, zero=1)) == 1
    assert _refined(data=2, zero=3) == []
    assert len(_refined(data=2, pipeline=2)) == 1
    assert len(_refined(context=2)) == 2


def test_hosts_may_serve_and_all_codecs_are_tried_between_them():
    codecs, _, _, servers = _refined(hosts=3, data=4, allowed=Allowed(codec="any"))
    assert [each.codec for each in codecs] == ["none", "fp16", "bf16", "int8"]
    assert {each.servers for each in servers} == {1, 3}
    assert {each.exchange for each in servers} == {Exchange.PARAMETER_SERVER}
    assert len(_refined(hosts=1, data=4, allowed=Allowed(codec="any"))) == 2
    assert len(_refined(hosts=2, data=4)) == 3
    for apart in ({"expert": 2}, {"context": 2}):
        assert len(_refined(hosts=2, data=4, **apart)) == 2


def test_local_sgd_is_tried_where_it_is_allowed():
    often = {"data": 4, "across": True, "servers": 2}
    *_, local = _refined(allowed=Allowed(period=2), **often)
    assert local == [Strategy(data=4, exchange=Exchange.LOCAL, period=2)]
    layers = (("p0", Agreement.SHARD),)
    for ways in _refined(allowed=Allowed(period=2), layers=layers, **often):
        assert all(each.exchange is Exchange.ALL_REDUCE for each in ways)
    for ways in _refined(allowed=Allowed(period=1), **often):
        assert all(each.period == 1 for each in ways)
