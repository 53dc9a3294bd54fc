"""Parameters that FSDP gathers for as long as they are needed.

Source: Zhao et al. 2023, "PyTorch FSDP", arXiv 2304.11277; torch.distributed.fsdp.fully_shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.forecast.memory.ledger import Holding, Ledger, Stream, Use
from slipstream.forecast.memory.units import Unit


@dataclass(slots=True, eq=False)
class _Run:
    """A unit's forward or backward pass, the one after it, and what is gathered for it."""

    span: range
    parameters: Sequence[int]
    following: _Run | None
    arriving: Holding | None = None
    whole: Sequence[Holding] = ()


class Gathers:
    """Takes and gives the whole parameters of units as these run; those of no unit stay for a pass.

    A unit's arrive in one buffer and are copied out of it; the next unit's buffer is on its way
    meanwhile.

    Args:
        units: in the order of the forward pass.
        whole: bytes of each parameter.
        ends: index after the last operator of the forward and of the backward pass.
        ledger: that pays.
        stays: what arrived stays, as stages need it again with each micro-batch.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        whole: Sequence[int],
        ends: tuple[int, int],
        ledger: Ledger,
        *,
        stays: bool,
    ) -> None:
        self._stays = stays
        self._whole = whole
        self._ends = ends
        self._ledger = ledger
        owned = {index for unit in units for index in unit.parameters}
        self._rest = [index for index in range(len(whole)) if index not in owned]
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
        """Does what is due before an operator; after the last, before the one that is not there."""
        if operator in (0, self._ends[0]) and self._held is None:
            arrived = self._buffer(self._rest)
            self._held = self._copies(self._rest)
            self._ledger.give(arrived)
        for run in self._stops.get(operator, ()) if not self._stays else ():
            self._ledger.give(*run.whole)
            run.whole = ()
        if operator == self._ends[1] and self._held is not None and not self._stays:
            self._ledger.give(*self._held)
            self._held = None
        for run in self._starts.get(operator, ()):
            self._gather(run)

    def _gather(self, run: _Run) -> None:
        if run.whole:
            return
        arrived = run.arriving or self._buffer(run.parameters)
        run.whole = self._copies(run.parameters)
        run.arriving = None
        self._ledger.give(arrived)
        if run.following is not None:
            run.following.arriving = self._buffer(run.following.parameters)

    def _buffer(self, parameters: Sequence[int]) -> Holding:
        total = sum(self._whole[index] for index in parameters)
        return self._ledger.take(Use.COMMUNICATION, total, Stream.GATHER)

    def _copies(self, parameters: Sequence[int]) -> Sequence[Holding]:
        return [self._ledger.take(Use.COMMUNICATION, self._whole[index]) for index in parameters]


def _chain(spans: Sequence[tuple[range, Sequence[int]]]) -> list[_Run]:
    """Runs that know the one after them."""
    runs: list[_Run] = []
    for span, parameters in reversed(spans):
        runs.append(_Run(span, parameters, runs[-1] if runs else None))
    return runs
