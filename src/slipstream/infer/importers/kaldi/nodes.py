"""The nodes of an nnet3 model, and their descriptors. A descriptor selects the frames to read.

Descriptors are documented in https://kaldi-asr.org/doc/dnn3_code_data_types.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.errors import UsageError

TOKEN = re.compile(r"\s*([A-Za-z_][\w.\-]*|[-+]?[\d.]+(?:[eE][-+]?\d+)?|[(),])")
KEY = re.compile(r"(?:^|\s)([\w-]+)=")
# Limits for damaged files, chosen by hand.
DEEPEST = 50  # nested descriptors
LARGEST = 100_000  # time offset, modulus, or number of dimensions


@dataclass(frozen=True)
class Reads:
    """The frames of the node with the name `node`."""

    node: str


@dataclass(frozen=True)
class Offset:
    """The frame of `source` that is `frames` later than the current time."""

    source: Descriptor
    frames: int


@dataclass(frozen=True)
class Round:
    """The frame of `source` at the current time, rounded down to a multiple of `modulus`."""

    source: Descriptor
    modulus: int


@dataclass(frozen=True)
class At:
    """The frame of `source` at the fixed time `time`, whatever the current time is."""

    source: Descriptor
    time: int


@dataclass(frozen=True)
class Optional:
    """The frames of `source`, and zeros at times at which `source` has no frame."""

    source: Descriptor


@dataclass(frozen=True)
class Failover:
    """The frames of `first`, or of `second` at times at which `first` has no frame."""

    first: Descriptor
    second: Descriptor


@dataclass(frozen=True)
class Sum:
    """The sum of two descriptors."""

    first: Descriptor
    second: Descriptor


@dataclass(frozen=True)
class ScaledTerm:
    """The frames of `source`, multiplied by `factor`."""

    source: Descriptor
    factor: float


@dataclass(frozen=True)
class Const:
    """Frames in which all of the `dim` dimensions have the value `value`."""

    value: float
    dim: int


@dataclass(frozen=True)
class Append:
    """The frames of several descriptors, concatenated along the axis of the dimensions."""

    parts: tuple[Descriptor, ...]


Descriptor = Reads | Offset | Round | At | Optional | Failover | Sum | ScaledTerm | Const | Append


@dataclass(frozen=True)
class KaldiNode:
    """A node of the network.

    Args:
        name: Name of the node.
        kind: Kind of the node: input-node, component-node, dim-range-node or output-node.
        source: Descriptor of the frames that the node reads; None for an input-node.
        component: Name of the component that a component-node applies (default none).
        offset: First dimension that a dim-range-node reads (default 0).
        dim: Number of dimensions of an input-node or dim-range-node (default 0).
    """

    name: str
    kind: str
    source: Descriptor | None
    component: str = ""
    offset: int = 0
    dim: int = 0


def parse_nodes(lines: list[str], where: str) -> dict[str, KaldiNode]:
    """Parse lines such as `component-node name=a component=b input=Offset(c, -1)`.

    Returns:
        The nodes that the lines describe, by name.

    Raises:
        UsageError: If a line cannot be parsed, or a node reads a node that does not exist.
    """
    nodes: dict[str, KaldiNode] = {}
    for line in lines:
        node = _node(line, where)
        if node.name in nodes:
            raise UsageError(f"{where}: two nodes have the name {node.name}")
        nodes[node.name] = node
    for node in nodes.values():
        for name in read_by(node.source):
            if name not in nodes or nodes[name].kind == "output-node":
                raise UsageError(f"{where}: node {node.name} reads {name}, which is no node")
    return nodes


def sources_of(descriptor: Descriptor) -> tuple[Descriptor, ...]:
    """Return the descriptors directly inside a descriptor, but not those nested deeper."""
    match descriptor:
        case Append(parts):
            return parts
        case Sum(first, second) | Failover(first, second):
            return (first, second)
        case Offset(source) | Round(source) | At(source) | ScaledTerm(source) | Optional(source):
            return (source,)
        case Reads() | Const():
            return ()


def parts_of(descriptor: Descriptor | None) -> Iterator[Descriptor]:
    """Yield a descriptor, and all descriptors that are nested inside it at any depth."""
    if descriptor is not None:
        yield descriptor
        for source in sources_of(descriptor):
            yield from parts_of(source)


def read_by(descriptor: Descriptor | None, *, required_only: bool = False) -> Iterator[str]:
    """Yield the names of the nodes that a descriptor reads.

    Args:
        required_only: Whether to leave out nodes that the descriptor reads inside of IfDefined,
            because their frames may be missing (default False).
    """
    if isinstance(descriptor, Reads):
        yield descriptor.node
    elif descriptor is not None and not (required_only and isinstance(descriptor, Optional)):
        for source in sources_of(descriptor):
            yield from read_by(source, required_only=required_only)


def _node(line: str, where: str) -> KaldiNode:
    kind = line.split(None, 1)[0]
    keys = list(KEY.finditer(line))
    ends = [key.start() for key in keys[1:]] + [len(line)]
    fields = {key[1]: line[key.end() : end].strip() for key, end in zip(keys, ends, strict=True)}
    needed = {
        "input-node": ("dim",),
        "component-node": ("component", "input"),
        "dim-range-node": ("input-node", "dim-offset", "dim"),
        "output-node": ("input",),
    }
    if kind not in needed or not all(key in fields for key in (*needed[kind], "name")):
        raise UsageError(f"{where}: the line {line[:120]!r} describes no node")
    name = fields["name"]
    source: Descriptor | None = None
    if "input-node" in fields:
        source = Reads(fields["input-node"])
    elif "input" in fields:
        source = _Parser(fields["input"], f"{where}: node {name}").parse()
    numbers = {
        key: _integer(fields.get(key, "0"), f"{where}: node {name}")
        for key in ("dim", "dim-offset")
    }
    if numbers["dim-offset"] < 0 or ("dim" in needed[kind] and numbers["dim"] < 1):
        raise UsageError(
            f"{where}: node {name} has {numbers['dim']} dimensions from {numbers['dim-offset']} on;"
            " allowed: at least 1, from 0 on"
        )
    return KaldiNode(
        name, kind, source, fields.get("component", ""), numbers["dim-offset"], numbers["dim"]
    )


def _integer(text: str, where: str) -> int:
    try:
        value = int(text)
    except ValueError as error:
        raise UsageError(f"{where}: {text[:40]!r} is no integer") from error
    if abs(value) > LARGEST:
        raise UsageError(f"{where}: {value} is too large; allowed: up to {LARGEST}")
    return value


class _Parser:
    """Parser of descriptors such as Append(Offset(a, -1), Sum(b, c))."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._tokens = TOKEN.findall(text)
        if "".join(self._tokens) != re.sub(r"\s", "", text):
            raise self._trouble(text)
        self._text = text
        self._at = 0

    def parse(self) -> Descriptor:
        """Parse the whole text as one descriptor."""
        descriptor = self._descriptor(0)
        if self._at != len(self._tokens):
            raise self._trouble(self._text)
        return descriptor

    def _trouble(self, text: str) -> UsageError:
        return UsageError(f"{self._where}: its input {text[:120]!r} cannot be read")

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise self._trouble(self._text)
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, mark: str) -> None:
        if self._next() != mark:
            raise self._trouble(self._text)

    def _has(self, mark: str) -> bool:
        """Return whether the next token equals `mark`; if so, consume the token."""
        is_next = self._tokens[self._at : self._at + 1] == [mark]
        self._at += is_next
        return is_next

    def _descriptor(self, depth: int) -> Descriptor:
        if depth > DEEPEST:
            raise self._trouble(self._text)
        name = self._next()
        if self._tokens[self._at : self._at + 1] != ["("]:
            if not re.match(r"[A-Za-z_]", name):
                raise self._trouble(self._text)
            return Reads(name)
        self._expect("(")
        descriptor = self._call(name, depth + 1)
        self._expect(")")
        return descriptor

    def _call(self, name: str, depth: int) -> Descriptor:
        if name in ("Scale", "Const"):
            return self._with_number(name, depth)
        sources = [self._descriptor(depth)]
        if name in ("Append", "Sum", "Failover"):
            while self._has(","):
                sources.append(self._descriptor(depth))
            return self._several(name, sources)
        (source,) = sources
        if name == "IfDefined":
            return Optional(source)
        self._expect(",")
        if name == "Offset":
            return self._offset(source)
        if name == "Round":
            modulus = _integer(self._next(), self._where)
            if modulus < 1:
                raise self._trouble(self._text)
            return Round(source, modulus)
        if name == "ReplaceIndex":
            return self._replaced(source)
        raise UsageError(f"{self._where}: the descriptor {name} is not supported")

    def _several(self, name: str, sources: list[Descriptor]) -> Descriptor:
        if name == "Append":
            return Append(tuple(sources))
        if name == "Failover":
            if len(sources) != 2:
                raise self._trouble(self._text)
            return Failover(*sources)
        total = sources[0]
        for source in sources[1:]:
            total = Sum(total, source)
        return total

    def _with_number(self, name: str, depth: int) -> Descriptor:
        text = self._next()
        try:
            number = float(text)
        except ValueError as error:
            raise self._trouble(self._text) from error
        self._expect(",")
        if name == "Scale":
            return ScaledTerm(self._descriptor(depth), number)
        dim = _integer(self._next(), self._where)
        if dim < 1:
            raise self._trouble(self._text)
        return Const(number, dim)

    def _offset(self, source: Descriptor) -> Descriptor:
        frames = _integer(self._next(), self._where)
        if self._has(",") and self._next() != "0":
            raise UsageError(f"{self._where}: offsets along x are not supported")
        return Offset(source, frames)

    def _replaced(self, source: Descriptor) -> Descriptor:
        variable = self._next()
        self._expect(",")
        value = _integer(self._next(), self._where)
        if variable == "x" and value == 0:
            return source
        if variable != "t":
            raise UsageError(f"{self._where}: ReplaceIndex of {variable} is not supported")
        return At(source, value)
