"""Shortest training step that the network between hosts allows, computed from a model's layers.

The network is modelled as ideal. Every host has one link, with the same rate in both directions. An
allreduce of b bytes among h hosts sends 2 (h-1)/h b bytes through each link. The gradients of a
layer are ready when its backward pass ends. Gradients can be sent in pieces of any size, and the
link is never idle while a gradient waits.

With overlap within the step, as in DDP, the optimizer starts when all gradients are communicated.
The next forward pass starts when the optimizer has finished. With overlap within the step, the
order of communication does not matter.

With overlap across the step boundary, a layer is updated as soon as its own gradients have arrived,
and then its forward pass runs. The gradients that the next forward pass needs first pre-empt all
other gradients on the link. The update of a layer takes compute time just before the layer's
forward pass. Therefore no step is shorter than all compute plus the transfer of the first layer's
gradients, which cannot overlap with anything.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slipstream.bench.models import Parameter, ReplayModel
from slipstream.codecs import EXACT, wire_bytes

Wire = Literal["fp32", "fp16", "int8"]

# A full TCP segment takes 1514 bytes on Ethernet, of which 1448 are payload.
GOODPUT = 0.956

# Bytes per element of a gradient between hosts, by precision.
WIRE_BYTES: Mapping[Wire, float] = {
    "fp32": wire_bytes(EXACT),
    "fp16": wire_bytes("fp16"),
    "int8": wire_bytes("int8"),
}

INDEX_BYTES = 4  # bytes of the index of a row in a sparse gradient

# The backward pass computes gradients of the inputs and of the parameters: twice the FLOPs.
BACKWARD_PER_FORWARD = 2

_SETTLED = 1e-6  # relative change of the step time below which the simulation stops
_MOST_STEPS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class HostNetwork:
    """Links between the hosts.

    Args:
        hosts: Number of hosts, at least 1.
        bits_per_second: Bit rate of each host's link, in each direction.
        goodput: Share of the rate that carries payload, 0 to 1 (default `GOODPUT`).
    """

    hosts: int
    bits_per_second: float
    goodput: float = GOODPUT

    def allreduce_seconds(self, num_bytes: float) -> float:
        """Return the seconds that a link is busy with an allreduce of a buffer."""
        return self._seconds(2 * (self.hosts - 1) / self.hosts * num_bytes)

    def allgather_seconds(self, num_bytes: float) -> float:
        """Return the seconds that a link is busy with an allgather of one buffer per host."""
        return self._seconds((self.hosts - 1) * num_bytes)

    def _seconds(self, num_bytes: float) -> float:
        return 8 * num_bytes / (self.bits_per_second * self.goodput)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTimes:
    """Times of one layer in a step.

    Args:
        forward: Seconds of the forward pass.
        backward: Seconds of the backward pass; at its end the gradients are ready.
        update: Seconds of the update by the optimizer.
        transfer: Seconds to communicate the layer's gradients on an idle link.
    """

    forward: float
    backward: float
    update: float
    transfer: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSeconds:
    """Times of a step without any communication.

    Args:
        compute: Seconds of the forward and backward passes.
        optimizer: Seconds of the optimizer's updates (default 0).
    """

    compute: float
    optimizer: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of the complete step."""
        return self.compute + self.optimizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """Lower bounds of the step time: without communication, and with two kinds of overlap.

    Args:
        compute_only: Seconds of a step without communication.
        within: Lower bound of the step time in seconds, with overlap within the step.
        across: Lower bound of the step time in seconds, with overlap across the step boundary.
    """

    compute_only: float
    within: float
    across: float

    @property
    def efficiency_within(self) -> float:
        """Step time without communication, divided by `within`."""
        return self.compute_only / self.within

    @property
    def efficiency_across(self) -> float:
        """Step time without communication, divided by `across`."""
        return self.compute_only / self.across


def limit(
    model: ReplayModel, step: StepSeconds, network: HostNetwork, wire: Wire, *, sparse: bool = False
) -> Limit:
    """Return the shortest step times that the network allows with each kind of overlap.

    Args:
        model: Model whose gradients are communicated.
        step: Times of a step without communication.
        network: Network between the hosts.
        wire: Precision in which gradients are sent between hosts.
        sparse: Whether only the non-zero rows of sparse gradients are sent (default False).
    """
    times = layer_times(model, step, network, wire, sparse=sparse)
    return Limit(compute_only=step.seconds, within=step_within(times), across=step_across(times))


def layer_times(
    model: ReplayModel, step: StepSeconds, network: HostNetwork, wire: Wire, *, sparse: bool = False
) -> list[LayerTimes]:
    """Return the times of each layer in a step.

    Compute time is divided among layers by their FLOPs, and optimizer time by their elements. The
    arguments are those of `limit`.
    """
    per_flop = step.compute / model.flops / (1 + BACKWARD_PER_FORWARD)
    per_element = step.optimizer / model.num_elements
    batch = model.batch if sparse else 0
    return [
        LayerTimes(
            forward=layer.flops * per_flop,
            backward=layer.flops * per_flop * BACKWARD_PER_FORWARD,
            update=layer.num_elements * per_element,
            transfer=sum(
                _transfer_seconds(parameter, network, WIRE_BYTES[wire], batch)
                for parameter in layer.parameters
            ),
        )
        for layer in model.layers
    ]


def _transfer_seconds(
    parameter: Parameter, network: HostNetwork, wire_bytes: float, batch: int
) -> float:
    """Return the seconds of the transfer of a gradient on an idle link.

    If `batch` is above 0, only the rows that differ from zero are sent, provided that this takes
    less time. Each host has different rows, so the rows are gathered instead of summed.
    """
    dense = network.allreduce_seconds(parameter.num_elements * wire_bytes)
    if not batch or not parameter.rows_per_sample:
        return dense
    index_bytes = parameter.touched_rows(batch) * INDEX_BYTES
    touched_bytes = parameter.touched_elements(batch) * wire_bytes
    return min(dense, network.allgather_seconds(touched_bytes + index_bytes))


def step_within(layers: Sequence[LayerTimes]) -> float:
    """Return the shortest step with overlap within the step, in seconds.

    Args:
        layers: Layers in forward order.
    """
    now = sum(layer.forward for layer in layers)
    link_free = now
    for layer in reversed(layers):
        now += layer.backward
        link_free = max(now, link_free) + layer.transfer
    return max(now, link_free) + sum(layer.update for layer in layers)


def step_across(layers: Sequence[LayerTimes]) -> float:
    """Return the shortest step with overlap across steps, in seconds.

    Steps are simulated one after another until the time per step no longer changes.

    Args:
        layers: Layers in forward order.
    """
    link = _Link([layer.transfer for layer in layers])
    start, end = 0.0, _end_of_step(layers, link, 0.0)
    for _ in range(_MOST_STEPS):
        last_duration = end - start
        start, end = end, _end_of_step(layers, link, end)
        if abs(end - start - last_duration) < _SETTLED * last_duration:
            break
    return end - start


def _end_of_step(layers: Sequence[LayerTimes], link: _Link, now: float) -> float:
    for index, layer in enumerate(layers):
        now = link.wait(index, now) + layer.update + layer.forward
    for index in reversed(range(len(layers))):
        now += layers[index].backward
        link.submit(index, now)
    return now


class _Link:
    """Link on which earlier layers' gradients (in forward order) pre-empt those of later layers."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds
        self._remaining: dict[int, float] = {}
        self._queue: list[int] = []
        self._now = 0.0

    def submit(self, index: int, now: float) -> None:
        """Submit the gradients of a layer, which are ready at the time `now`."""
        self._advance(now)
        self._remaining[index] = self._seconds[index]
        heapq.heappush(self._queue, index)

    def wait(self, index: int, now: float) -> float:
        """Return the time when a layer's gradients arrive if no more gradients are submitted."""
        self._advance(now)
        if index not in self._remaining:
            return now
        while self._queue and self._queue[0] <= index:
            now += self._remaining.pop(heapq.heappop(self._queue))
        self._now = now
        return now

    def _advance(self, now: float) -> None:
        available = now - self._now
        self._now = now
        while self._queue and available > 0:
            first = self._queue[0]
            if available < self._remaining[first]:
                self._remaining[first] -= available
                return
            available -= self._remaining.pop(heapq.heappop(self._queue))
