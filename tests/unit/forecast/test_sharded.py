"""Steps that gather the parameters of each block just in time, by hand."""

from __future__ import annotations

import pytest

from slipstream.forecast.simulate.resources import Resources, ResourceSpan
from slipstream.forecast.simulate.sharded import ShardedBlock, run


def test_queues_begin_when_they_are_free_and_what_they_wait_for_has_ended():
    queues = Resources()
    assert queues.free("device 0") == 0
    assert queues.run("device 0", "a", 2.0, after=1.0) == 3.0
    assert queues.run("device 0", "b", 1.0, after=2.0) == 4.0
    assert queues.run("device 1", "c", 0.0, after=9.0) == 9.0
    # A task without duration is not shown, but its resource is not free earlier.
    assert queues.spans == [
        ResourceSpan("device 0", "a", 1.0, 3.0),
        ResourceSpan("device 0", "b", 3.0, 4.0),
    ]
    assert queues.run("device 1", "d", 1.0) == 10.0
    assert (queues.free("device 0"), queues.free("device 1")) == (4.0, 10.0)
    assert (queues.busy("device"), queues.busy("device 1"), queues.busy("host")) == (4.0, 1.0, 0)


def test_known_spans_are_added_as_they_are():
    queues = Resources()
    queues.add([ResourceSpan("host", "a", 1.0, 2.0), ResourceSpan("host", "b", 5.0, 5.0)])
    assert queues.spans == [ResourceSpan("host", "a", 1.0, 2.0)]
    assert queues.run("host", "c", 1.0) == 6.0


def test_a_block_is_computed_after_it_is_gathered_and_sent_after_it_is_computed():
    queues = Resources()
    # Gather for 2, forward for 3 beside the next gather, backward for 5, send for 1.
    assert run([ShardedBlock(3.0, 5.0, 2.0, 1.0)], 1, 1.0, queues) == 2 + 3 + 5 + 1
    assert queues.spans == [
        ResourceSpan("network 0", "all-gather", 0.0, 2.0),
        ResourceSpan("network 0", "all-gather", 2.0, 4.0),
        ResourceSpan("device 0", "forward 0", 2.0, 5.0),
        ResourceSpan("device 0", "backward 0", 5.0, 10.0),
        ResourceSpan("network 0", "reduce-scatter", 10.0, 11.0),
    ]


def test_blocks_go_forward_in_order_and_back_in_reverse():
    queues = Resources()
    blocks = [ShardedBlock(1.0, 10.0, 0.0, 0.0), ShardedBlock(2.0, 20.0, 0.0, 0.0)]
    assert run(blocks, 2, 1.0, queues) == 66
    device = [(span.name, span.end - span.start) for span in queues.spans]
    assert device == [
        ("forward 0", 1), ("forward 0", 2), ("backward 0", 20), ("backward 0", 10),
        ("forward 1", 1), ("forward 1", 2), ("backward 1", 20), ("backward 1", 10),
    ]  # fmt: skip


def test_what_does_not_overlap_takes_the_device():
    queues = Resources()
    # Half of the communication occupies the network, and the device waits for the other half.
    end = run([ShardedBlock(3.0, 5.0, 2.0, 4.0)], 1, 0.5, queues)
    assert end == pytest.approx(1 + (3 + 1) + (5 + 1 + 2) + 2)
    assert queues.busy("network") == pytest.approx(1 + 1 + 2)


@pytest.mark.parametrize("micro_batches", [1, 4, 5, 50])
def test_micro_batches_after_the_fourth_are_like_it(micro_batches: int):
    blocks = [ShardedBlock(1.0, 2.0, 0.25, 0.125)] * 3
    queues = Resources()
    # The network is faster than the device, so only the first gather and the last send are visible.
    end = run(blocks, micro_batches, 1.0, queues)
    assert end == pytest.approx(0.25 + 9 * micro_batches + 0.125)
    assert len([span for span in queues.spans if span.queue == "device 0"]) == 6 * min(
        micro_batches, 4
    )
