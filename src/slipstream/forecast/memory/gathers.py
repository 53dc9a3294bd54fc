"""The memory of parameters that FSDP gathers before a unit runs and frees after it.

Source: Zhao et al. 2023, "PyTorch FSDP", arXiv 2304.11277; torch.distributed.fsdp.fully_shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.forecast.memory.ledger import Holding, Ledger, MemoryStream, Use
from slipstream.forecast.memory.units import RepeatedModule


@dataclass(slots=True, eq=False)
class _Run:
    """The forward or backward pass of a unit, its gathered parameters, and the pass after it."""

    span: range
    parameters: Sequence[int]
    following: _Run | None
    arriving: Holding | None = None
    complete: Sequence[Holding] = ()


class Gathers:
    """The memory of gathered parameters while the operators of a rank run.

    The parameters of a unit arrive in one buffer, from which they are copied to memory of their
    own. Before a unit runs, the buffer of the next unit is allocated. Parameters outside all units
    stay in memory through the forward and the backward pass.

    Args:
        units: Units in the order of the forward pass; see `slipstream.forecast.memory.units`.
        complete: Size in bytes of each parameter when it is complete, not sharded.
        ends: Index of the operator after the last forward operator, and index of the operator after
            the last backward operator.
        ledger: Ledger that counts the memory.
        stays: Whether gathered parameters stay in memory for the whole step. They stay in a
            pipeline stage, which needs them again for each micro-batch.
    """

    def __init__(
        self,
        units: Sequence[RepeatedModule],
        complete: Sequence[int],
        ends: tuple[int, int],
        ledger: Ledger,
        *,
        stays: bool,
    ) -> None:
        self._stays = stays
        self._whole = complete
        self._ends = ends
        self._ledger = ledger
        owned = {index for unit in units for index in unit.parameters}
        self._rest = [index for index in range(len(complete)) if index not in owned]
        self._held: Sequence[Holding] | None = None
        back = sorted((u for u in units if u.backward), key=lambda unit: unit.backward.start)
        forward = _chain([(unit.forward, unit.parameters) for unit in units])
        backward = _chain([(unit.backward, unit.parameters) for unit in back if not stays])
        self._starts: dict[int, list[_Run]] = {}
        self._stops: dict[int, list[_Run]] = {}
        for run in (*forward, *backward):
            self._starts.setdefault(run.span.start, []).append(run)
            self._stops.setdefault(run.span.stop, []).append(run)

    def before(self, operator: int) -> None:
        """Gather and free parameters before an operator.

        Args:
            operator: Index of the next operator. At the end of the step, when no operator is left,
                it is the number of operators.
        """
        if operator in (0, self._ends[0]) and self._held is None:
            arrived = self._buffer(self._rest)
            self._held = self._copies(self._rest)
            self._ledger.give(arrived)
        for run in self._stops.get(operator, ()) if not self._stays else ():
            self._ledger.give(*run.complete)
            run.complete = ()
        if operator == self._ends[1] and self._held is not None and not self._stays:
            self._ledger.give(*self._held)
            self._held = None
        for run in self._starts.get(operator, ()):
            self._gather(run)

    def _gather(self, run: _Run) -> None:
        if run.complete:
            return
        arrived = run.arriving or self._buffer(run.parameters)
        run.complete = self._copies(run.parameters)
        run.arriving = None
        self._ledger.give(arrived)
        if run.following is not None:
            run.following.arriving = self._buffer(run.following.parameters)

    def _buffer(self, parameters: Sequence[int]) -> Holding:
        total = sum(self._whole[index] for index in parameters)
        return self._ledger.take(Use.COMMUNICATION, total, MemoryStream.GATHER)

    def _copies(self, parameters: Sequence[int]) -> Sequence[Holding]:
        return [self._ledger.take(Use.COMMUNICATION, self._whole[index]) for index in parameters]


def _chain(spans: Sequence[tuple[range, Sequence[int]]]) -> list[_Run]:
    """Return the passes of the units, last first; each is linked to the pass that runs after it."""
    runs: list[_Run] = []
    for span, parameters in reversed(spans):
        runs.append(_Run(span, parameters, runs[-1] if runs else None))
    return runs
