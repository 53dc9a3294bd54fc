"""Find cycles among nodes, an order of computation, and the times at which nodes have frames."""

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

FAR = 2**40  # frames; stands for an infinite time


@dataclass(frozen=True)
class FrameSpan:
    """Frames from `begin` on, up to but not including `end`."""

    begin: int
    end: int

    def moved(self, frames: int) -> FrameSpan:
        """Return the span that begins and ends `frames` later; `ALWAYS` stays the same."""
        if self == ALWAYS:
            return self
        return FrameSpan(self.begin + frames, self.end + frames)

    def both(self, other: FrameSpan) -> FrameSpan:
        """Return the intersection of two spans."""
        return FrameSpan(max(self.begin, other.begin), min(self.end, other.end))

    @property
    def is_empty(self) -> bool:
        """Whether the span has no frame."""
        return self.end <= self.begin


ALWAYS = FrameSpan(-FAR, FAR)
NEVER = FrameSpan(0, 0)


def span_of(descriptor: Descriptor, spans: Mapping[str, FrameSpan], where: str) -> FrameSpan:
    """Return the frames at which a descriptor is defined.

    Args:
        spans: Frames at which each node is defined, by the node's name.
        where: Name of the descriptor's node in error messages.
    """
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
            span = span_of(source, spans, where)
            return ALWAYS if span.begin <= time < span.end else NEVER
        case Optional() | Const():
            return ALWAYS
        case Failover(first, second):
            return _either(span_of(first, spans, where), span_of(second, spans, where), where)
        case Sum(first, second):
            return span_of(first, spans, where).both(span_of(second, spans, where))
        case Append(parts):
            return reduce(FrameSpan.both, [span_of(part, spans, where) for part in parts])


def _rounded(span: FrameSpan, modulus: int) -> FrameSpan:
    if span == ALWAYS:
        return span
    begin = -(-span.begin // modulus) * modulus
    return FrameSpan(begin, ((span.end - 1) // modulus + 1) * modulus)


def _either(one: FrameSpan, other: FrameSpan, where: str) -> FrameSpan:
    if one.is_empty or other.is_empty:
        return other if one.is_empty else one
    if one.begin > other.end or other.begin > one.end:
        raise UsageError(f"{where}: there are frames between the two parts of a Failover")
    return FrameSpan(min(one.begin, other.begin), max(one.end, other.end))


def groups(edges: Mapping[str, list[str]]) -> list[list[str]]:
    """Return groups of nodes that depend on one another, in an order in which they can run.

    Tarjan's algorithm is written without recursion, because networks are deep.
    """
    result: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    stacked: set[str] = set()
    for root in edges:
        work = [(root, 0)] if root not in number else []
        while work:
            node, position = work.pop()
            if position == 0:
                number[node] = lowest[node] = len(number)
                stack.append(node)
                stacked.add(node)
            elif edges[node][position - 1] in stacked:
                lowest[node] = min(lowest[node], lowest[edges[node][position - 1]])
            if position < len(edges[node]):
                work.append((node, position + 1))
                other = edges[node][position]
                if other not in number:
                    work.append((other, 0))
            elif lowest[node] == number[node]:
                result.append(_pop_group(stack, stacked, node))
    return result


def _pop_group(stack: list[str], stacked: set[str], node: str) -> list[str]:
    """Remove a node and all nodes above it from the stack; return the removed nodes, a group."""
    at = stack.index(node)
    group = stack[at:]
    del stack[at:]
    stacked.difference_update(group)
    return group
