"""The memory of gradients during a step: accumulated, in buckets, or sharded."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.forecast.memory.ledger import Holding, Ledger, MemoryStream, Use
from slipstream.forecast.memory.sharing import Sizes, gradient_owners, has_buckets
from slipstream.forecast.work.strategy import Strategy
from slipstream.forecast.work.workload import Workload


class GradientMemory:
    """The memory of gradients, from the backward operators to the end of the step.

    On a single device, the gradients of the first micro-batch stay in memory, and the gradients of
    later micro-batches are added to those of the first. DDP allocates its buckets before the first
    step. Gradients are views of the buckets, or have memory in addition to the buckets. With ZeRO 2
    and 3 the gradients of a bucket stay complete until the bucket is full. The gradients of a full
    bucket move to a buffer, which lives until the next bucket is full, and the rank keeps its
    shard. Pipeline stages accumulate complete gradients and shard them after the last micro-batch.

    `is_last` is true while the last micro-batch of a step runs.

    Args:
        workload: Forward and backward pass of one micro-batch. `Workload.values` lists all its
            tensors; the gradients are among them.
        strategy: Strategy whose `zero` and `data` decide what the replicas shard.
        sizes: Sizes in bytes of each parameter of the workload, its gradient and its optimizer
            states.
        groups: Groups of parameters, each a list of indices in `sizes`. The gradients of a group
            are exchanged together.
        ledger: Ledger that counts the memory.
        views: Whether gradients are views of buckets.
    """

    def __init__(
        self,
        workload: Workload,
        strategy: Strategy,
        sizes: Sequence[Sizes],
        groups: Sequence[Sequence[int]],
        ledger: Ledger,
        *,
        views: bool,
    ) -> None:
        self._workload = workload
        self._sizes = sizes
        self._ledger = ledger
        self._owners = gradient_owners(workload)
        self._shares = strategy.zero >= 2 and strategy.data > 1
        self._views = views and has_buckets(strategy)
        if has_buckets(strategy):
            use = Use.GRADIENTS if views else Use.COMMUNICATION
            for group in groups:
                ledger.take(use, sum(sizes[index].complete for index in group))
        # Gradients and groups of parameters, by the operator after which they are complete.
        self._settled: dict[int, list[int]] = {}
        self._full: dict[int, list[Sequence[int]]] = {}
        self._schedule(groups)
        self._fresh: dict[int, Holding] = {}
        self._kept: dict[int, Holding] = {}
        self._sent: list[Holding] = []
        # Unsharded sums of gradients over the micro-batches so far, by parameter.
        self._sums: dict[int, Holding] = {}
        self._waits = self._shares and strategy.pipeline > 1
        self.is_last = True

    def __contains__(self, value: object) -> bool:
        return value in self._owners

    def clear(self) -> None:
        """Free the gradients of the previous step."""
        self._ledger.give(*self._kept.values())
        self._kept.clear()

    def take(self, value: int) -> None:
        """Allocate a gradient, which may not be complete yet."""
        size = self._workload.values[value].num_bytes
        self._fresh[value] = self._ledger.take(Use.GRADIENTS, size)

    def after(self, operator: int) -> None:
        """Keep, accumulate or exchange the gradients that are complete after an operator."""
        if not self._shares:
            for value in self._settled.get(operator, ()):
                self._keep_or_add(value)
            return
        for group in self._full.get(operator, ()):
            if self._waits and not self.is_last:
                self._add(group)
            else:
                self._send(group)
        if operator == len(self._workload.operators) - 1:
            self._ledger.give(*self._sent, *self._fresh.values())
            self._sent, self._fresh = [], {}

    def _schedule(self, groups: Sequence[Sequence[int]]) -> None:
        last = len(self._workload.operators) - 1
        parameters = self._workload.parameters
        for value, owner in sorted(self._owners.items()):
            ready = parameters[owner].ready if owner >= 0 else last
            self._settled.setdefault(ready, []).append(value)
        for group in groups:
            ready = max(parameters[index].ready for index in group)
            self._full.setdefault(ready, []).append(group)

    def _keep_or_add(self, value: int) -> None:
        fresh = self._fresh.pop(value, None)
        if fresh is None:
            return
        if value in self._kept or self._views:
            self._ledger.give(fresh)
        else:
            self._kept[value] = fresh

    def _send(self, group: Sequence[int]) -> None:
        """Copy complete gradients into a buffer and keep the rank's shard."""
        total = sum(self._sizes[index].sent for index in group)
        buffer = self._ledger.take(Use.COMMUNICATION, total)
        self._end(group)
        self._ledger.give(*[self._sums.pop(index) for index in group if index in self._sums])
        self._ledger.give(*self._sent)
        self._sent = [buffer]
        for index in group:
            if index not in self._kept:
                size = self._sizes[index].gradient
                self._kept[index] = self._ledger.take(Use.GRADIENTS, size, MemoryStream.SCATTER)

    def _add(self, group: Sequence[int]) -> None:
        """Add complete gradients to the sums of earlier micro-batches."""
        for index in group:
            if index not in self._sums:
                self._sums[index] = self._ledger.take(Use.GRADIENTS, self._sizes[index].sent)
        self._end(group)

    def _end(self, group: Sequence[int]) -> None:
        """Free the current micro-batch's gradients of a group of parameters."""
        members = set(group)
        for value in [v for v in self._fresh if self._owners[v] in members]:
            self._ledger.give(self._fresh.pop(value))
