"""The memory that training needs on a device, computed by a replay of every allocation.

Two steps are replayed, because the first step begins without optimizer states. Between the
operators the replay follows PyTorch: `zero_grad` frees gradients before the forward pass, and an
optimizer with `foreach` allocates its temporaries for all parameters at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.forecast.memory.allocator import Allocator
from slipstream.forecast.memory.checkpoint import checkpointed
from slipstream.forecast.memory.gathers import Gathers
from slipstream.forecast.memory.gradients import GradientMemory
from slipstream.forecast.memory.ledger import FullError, Holding, Ledger, Use
from slipstream.forecast.memory.loss import with_compiled_loss, with_shared_loss
from slipstream.forecast.memory.sharing import Sizes, buckets, sizes
from slipstream.forecast.memory.units import num_forward, readers_of, units
from slipstream.forecast.work.strategy import Exchange, Optimizer, Strategy
from slipstream.forecast.work.workload import Workload

# Replayed steps: the first one creates the optimizer states, and all later ones are like the
# second.
_STEPS = 2
# An allocation may have a slightly different size in the second step, because other pieces of
# memory are free. tests/unit/forecast/test_search_parts.py checks against complete replays that
# this margin is enough.
_SLACK = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory:
    """Peak memory of the fullest device, in bytes.

    Args:
        reserved: Peak of all memory that the process occupies: the allocator's segments, and the
            context.
        allocated: Peak of the memory in use: the sum of the fields from `parameters` to
            `communication`.
        parameters: Parameters and buffers.
        gradients: Gradients, or the buckets if gradients are views of buckets.
        states: Optimizer states, and copies of parameters in fp32.
        activations: Activations and inputs.
        workspace: Workspaces of libraries, and temporaries of the optimizer.
        communication: Gathered parameters, and buckets if gradients are not views of buckets.
        at: Names of the module and the operator that run at the peak of `allocated`.
    """

    reserved: int
    allocated: int
    parameters: int
    gradients: int
    states: int
    activations: int
    workspace: int
    communication: int
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The runtime settings of a rank whose memory is replayed.

    Args:
        master: Whether the optimizer works on fp32 copies of 16-bit parameters (default False).
        context_bytes: Memory in bytes that the device's context and libraries use outside of the
            allocator (default 0).
        workspace_bytes: Memory in bytes that libraries such as cuBLAS allocate once and keep
            (default 0).
        in_flight: Number of micro-batches whose activations are in memory at the same time, at
            least 1; stage `i` of 1F1B has `min(micro_batches, pipeline - i)` (default 1).
        fused: Whether the optimizer updates parameters in fused kernels, which need no temporaries
            (default False).
        views: Whether gradients are views of DDP's buckets, like with `gradient_as_bucket_view`
            (default False).
        device_bytes: Memory of the device in bytes. If an allocation would exceed `device_bytes`,
            the allocator first returns cached segments to the device. A peak above `device_bytes`
            is the memory that would be needed (default None: no limit).
        selective: Whether checkpoints keep the results of attention and of every second matrix
            product (default False).
        compiled: Whether repeated modules are compiled; selective checkpoints then keep only
            results that the backward pass reads (default False).
        compiled_loss: Whether the loss is compiled (default False).
        expandable: Whether the allocator's segments grow, like with `expandable_segments:True`
            (default False).
    """

    master: bool = False
    context_bytes: int = 0
    workspace_bytes: int = 0
    in_flight: int = 1
    fused: bool = False
    views: bool = False
    device_bytes: int | None = None
    selective: bool = False
    compiled: bool = False
    compiled_loss: bool = False
    expandable: bool = False


def replay(
    workload: Workload,
    strategy: Strategy,
    *,
    optimizer: Optimizer,
    options: ReplayOptions = ReplayOptions(),
    most_bytes: float = math.inf,
) -> PeakMemory:
    """Return the peak memory of a rank. The call takes some microseconds per operator.

    Args:
        workload: Workload of one micro-batch on one tensor-parallel rank and one pipeline stage,
            without checkpoints. Values that exist before the step and are freed during the step are
            inputs; each micro-batch has its own inputs.
        strategy: Strategy of the rank. The replay applies `data`, `zero`, `checkpoint`,
            `micro_batches`, `exchange` and `bucket_bytes`; the workload and `in_flight` already
            reflect all other fields of the strategy.
        optimizer: Optimizer, whose states have the dtype of the parameters or, if `options.master`
            is set, fp32.
        options: Runtime settings of the rank (default `ReplayOptions()`).
        most_bytes: Memory in bytes at which the replay stops with an error (default: no limit).

    Raises:
        FullError: The rank needs more than `most_bytes`.
    """
    workload = _as_run(workload, strategy, options)
    context_bytes, limit = options.context_bytes, options.device_bytes
    if limit is not None:
        limit -= context_bytes
    ledger = Ledger(Allocator(limit, expandable=options.expandable))
    rank = _ReplayedRank(workload, strategy, ledger, master=options.master, views=options.views)
    ledger.take(Use.WORKSPACE, options.workspace_bytes)
    for step in range(_STEPS):
        # The second step needs the same memory as the first, and the optimizer states. The limit of
        # the first step is reduced by their size, so that a replay beyond the limit stops early.
        ahead = rank.states(optimizer) if step == 0 else 0
        ledger.room = (most_bytes - context_bytes - ahead) * _SLACK
        rank.run(options.in_flight)
        ledger.room = math.inf
        rank.update(optimizer, fused=options.fused)
    if ledger.allocator.peak_reserved + context_bytes > most_bytes:
        raise FullError
    used = {use.name.lower(): num_bytes for use, num_bytes in ledger.peak.items()}
    return PeakMemory(
        reserved=ledger.allocator.peak_reserved + context_bytes,
        allocated=ledger.allocator.peak_allocated,
        at=ledger.peak_at,
        **used,
    )


def _as_run(workload: Workload, strategy: Strategy, options: ReplayOptions) -> Workload:
    """Return a workload with its checkpoints, compiled loss and sharded loss applied."""
    if options.compiled_loss:
        workload = with_compiled_loss(workload)
    if strategy.checkpoint or options.selective:
        workload = checkpointed(workload, selective=options.selective, lazy=options.compiled)
    return with_shared_loss(workload) if strategy.tensor > 1 else workload


class _ReplayedRank:
    """The memory of a device, from the creation of the model onwards."""

    def __init__(
        self,
        workload: Workload,
        strategy: Strategy,
        ledger: Ledger,
        *,
        master: bool,
        views: bool,
    ) -> None:
        self._workload = workload
        self._strategy = strategy
        self._ledger = ledger
        self._forward = num_forward(workload)
        self._sizes = sizes(workload, strategy, master=master)
        self._trained = [
            i for i, parameter in enumerate(workload.parameters) if parameter.ready >= 0
        ]
        self._has_states = False
        modules = units(workload) if strategy.zero == 3 else ()
        self._make_model()
        groups = buckets(workload, strategy, modules)
        self._gradients = GradientMemory(
            workload, strategy, self._sizes, groups, ledger, views=views
        )
        self._gathers = None
        if strategy.zero == 3 and strategy.data > 1:
            complete = [parameter_sizes.complete for parameter_sizes in self._sizes]
            ends = (self._forward, len(workload.operators))
            stays = strategy.pipeline > 1
            self._gathers = Gathers(modules, complete, ends, ledger, stays=stays)
        self._names = [
            f"{operator.module} {operator.name}".strip() for operator in workload.operators
        ]
        # Indices of the values that each operator creates, and of the values that are freed before
        # each operator.
        self._births: list[list[int]] = [[] for _ in workload.operators]
        self._deaths: list[list[int]] = [[] for _ in range(len(workload.operators) + 1)]
        self._schedule_values()

    def run(self, in_flight: int) -> None:
        """Replay the micro-batches of a step in the order of 1F1B."""
        self._gradients.clear()
        alive: deque[dict[int, Holding]] = deque()
        # Once a micro-batch has run beside the gradients of an earlier micro-batch, all later
        # micro-batches need the same memory.
        count = min(self._strategy.micro_batches, in_flight + 2)
        for started in range(count + in_flight):
            if started >= in_flight and alive:
                self._gradients.is_last = started >= count and len(alive) == 1
                self._run(alive.popleft(), self._forward, len(self._workload.operators))
            if started < count:
                alive.append(self._begin())

    def states(self, optimizer: Optimizer) -> int:
        """Return the bytes of the optimizer states that the first update creates."""
        return optimizer.value * sum(self._sizes[index].state for index in self._trained)

    def update(self, optimizer: Optimizer, *, fused: bool) -> None:
        """Replay the optimizer, which creates its states in the first step."""
        take = self._ledger.take
        self._ledger.at = "optimizer step"
        trained = [self._sizes[index] for index in self._trained]
        if not self._has_states:
            for parameter_sizes in trained:
                for _ in range(optimizer.value):
                    take(Use.STATES, parameter_sizes.state)
            self._has_states = True
        temporaries = [] if fused else _temporaries(trained, optimizer)
        self._ledger.give(*[take(Use.WORKSPACE, num_bytes) for num_bytes in temporaries])
        if self._strategy.exchange is Exchange.LOCAL and self._strategy.data > 1:
            # Local SGD averages a flat copy of the model.
            copy_bytes = sum(parameter_sizes.complete for parameter_sizes in self._sizes)
            self._ledger.give(take(Use.COMMUNICATION, copy_bytes))

    def _make_model(self) -> None:
        """Allocate the memory that exists before the first step."""
        take = self._ledger.take
        self._ledger.at = "making the model"
        for parameter_sizes in self._sizes:
            take(Use.PARAMETERS, parameter_sizes.stored)
        parameters = {parameter.value for parameter in self._workload.parameters}
        buffers_and_inputs = [
            value.num_bytes
            for index, value in enumerate(self._workload.values)
            if value.born < 0 and value.dies < 0 and index not in parameters
        ]
        buffers = self._workload.buffer_bytes
        for num_bytes in buffers_and_inputs:
            take(Use.PARAMETERS if buffers > 0 else Use.ACTIVATIONS, num_bytes)
            buffers -= num_bytes
        for index in self._trained:
            take(Use.STATES, self._sizes[index].master)

    def _schedule_values(self) -> None:
        parameters = {parameter.value for parameter in self._workload.parameters}
        readers = readers_of(self._workload)
        for index, value in enumerate(self._workload.values):
            if index in parameters or index not in readers or (value.born < 0 and value.dies < 0):
                continue
            # Values from other ranks arrive before their first use.
            born = value.born if value.born >= 0 else readers[index][0]
            self._births[born].append(index)
            if value.dies >= 0:
                self._deaths[value.dies].append(index)

    def _begin(self) -> dict[int, Holding]:
        held: dict[int, Holding] = {}
        self._run(held, 0, self._forward)
        return held

    def _run(self, held: dict[int, Holding], start: int, stop: int) -> None:
        """Replay a range of a micro-batch's operators; `held` contains the live values."""
        take, gradients, values = self._ledger.take, self._gradients, self._workload.values
        for index in range(start, stop):
            self._ledger.at = self._names[index]
            self._before(held, index)
            for value in self._births[index]:
                if value in gradients:
                    gradients.take(value)
                else:
                    held[value] = take(Use.ACTIVATIONS, values[value].num_bytes)
            gradients.after(index)
        self._end(held, stop)
        if stop == len(self._names):
            self._before(held, stop)
            # Values that a module keeps are freed, because the next micro-batch replaces them.
            self._ledger.give(*held.values())

    def _end(self, held: dict[int, Holding], index: int) -> None:
        """Free the values that the operators from `index` on no longer use."""
        for value in self._deaths[index]:
            if value in held:
                self._ledger.give(held.pop(value))

    def _before(self, held: dict[int, Holding], index: int) -> None:
        self._end(held, index)
        if self._gathers is not None:
            self._gathers.before(index)


def _temporaries(trained: Sequence[Sizes], optimizer: Optimizer) -> list[int]:
    """Return the sizes in bytes of the temporary tensors of an update.

    The temporary tensors are the square roots of Adam's second moments, and fp32 gradients if the
    optimizer works on fp32 copies of parameters.
    """
    copies = [parameter_sizes.state for parameter_sizes in trained if parameter_sizes.master]
    roots = [parameter_sizes.state for parameter_sizes in trained if optimizer is Optimizer.ADAM]
    return copies + roots
