"""In which order nodes can be computed, and when: which of them go round in circles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from slipstream.errors import UsageError
from slipstream.infer.importers.kaldi.nodes import (
    Append,
    At,
    Const,
    Descriptor,
    Failover,
    Offset,
    Optional,
    Reads,
    Round,
    ScaledTerm,
    Sum,
)

FAR = 2**40


@dataclass(frozen=True)
class FrameSpan:
    """Frames from `begin` to before `end`."""

    begin: int
    end: int

    def moved(self, frames: int) -> FrameSpan:
        """The same, that many frames later; what has no end stays as it is."""
        if self == ALWAYS:
            return self
        return FrameSpan(self.begin + frames, self.end + frames)

    def both(self, other: FrameSpan) -> FrameSpan:
        """Return the intersection of two spans."""
        return FrameSpan(max(self.begin, other.begin), min(self.end, other.end))

    @property
    def is_empty(self) -> bool:
        """Whether it has no frame."""
        return self.end <= self.begin


ALWAYS = FrameSpan(-FAR, FAR)
NEVER = FrameSpan(0, 0)


def span_of(descriptor: Descriptor, spans: Mapping[str, FrameSpan], where: str) -> FrameSpan:
    """Return the frames at which a descriptor is defined, given the spans of the nodes."""
    match descriptor:
        case Reads(node):
            return spans[node]
        case Offset(source, frames):
            return span_of(source, spans, where).moved(-frames)
        case ScaledTerm(source, _):
            return span_of(source, spans, where)
        case Round(source, modulus):
            return _rounded(span_of(source, spans, where), modulus)
        case At(source, time):
            found = span_of(source, spans, where)
            return ALWAYS if found.begin <= time < found.end else NEVER
        case Optional() | Const():
            return ALWAYS
        case Failover(first, second):
            return _either(span_of(first, spans, where), span_of(second, spans, where), where)
        case Sum(first, second):
            return span_of(first, spans, where).both(span_of(second, spans, where))
        case Append(parts):
            found = [span_of(part, spans, where) for part in parts]
            return reduce(FrameSpan.both, found)


def _rounded(span: FrameSpan, modulus: int) -> FrameSpan:
    if span == ALWAYS:
        return span
    begin = -(-span.begin // modulus) * modulus
    return FrameSpan(begin, ((span.end - 1) // modulus + 1) * modulus)


def _either(one: FrameSpan, other: FrameSpan, where: str) -> FrameSpan:
    if one.is_empty or other.is_empty:
        return other if one.is_empty else one
    if one.begin > other.end or other.begin > one.end:
        raise UsageError(f"{where}: the parts of a Failover leave frames out between them")
    return FrameSpan(min(one.begin, other.begin), max(one.end, other.end))


def groups(edges: Mapping[str, list[str]]) -> list[list[str]]:
    """Nodes that depend on one another together, those that others need first.

    Tarjan's algorithm without recursion, as networks are deep.
    """
    found: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    stacked: set[str] = set()
    for root in edges:
        work = [(root, 0)] if root not in number else []
        while work:
            node, place = work.pop()
            if place == 0:
                number[node] = lowest[node] = len(number)
                stack.append(node)
                stacked.add(node)
            elif edges[node][place - 1] in stacked:
                lowest[node] = min(lowest[node], lowest[edges[node][place - 1]])
            if place < len(edges[node]):
                work.append((node, place + 1))
                other = edges[node][place]
                if other not in number:
                    work.append((other, 0))
            elif lowest[node] == number[node]:
                found.append(_taken(stack, stacked, node))
    return found


def _taken(stack: list[str], stacked: set[str], node: str) -> list[str]:
    """The nodes on the stack from one on, which are a group."""
    at = stack.index(node)
    group = stack[at:]
    del stack[at:]
    stacked.difference_update(group)
    return group
