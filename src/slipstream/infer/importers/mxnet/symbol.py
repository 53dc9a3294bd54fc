"""Reader of MXNet's -symbol.json files: nodes, their inputs, and their attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError, reason_of

VARIABLE = "null"
LOSSES = {  # only the first input of these operators is imported; the second input is the label
    "LinearRegressionOutput",
    "LogisticRegressionOutput",
    "MAERegressionOutput",
    "SVMOutput",
    "Softmax",
    "SoftmaxOutput",
}


@dataclass(frozen=True)
class SymbolOptions:
    """Attributes of a node, as strings. A method raises UsageError if a string cannot be parsed."""

    where: str
    texts: Mapping[str, str]

    def text(self, name: str, default: str) -> str:
        """Return an option as a string, or `default` if the option is absent."""
        return self.texts.get(name, default)

    def has(self, name: str) -> bool:
        """Return whether the option is present and is not the string "None"."""
        return self.texts.get(name, "None") != "None"

    def flag(self, name: str, default: bool) -> bool:
        """Return an option as a truth value, or `default` if the option is absent."""
        text = self.texts.get(name, str(default))
        if text not in ("True", "False", "1", "0", "true", "false"):
            raise self._misfit(name, "True, False")
        return text in ("True", "1", "true")

    def integer(self, name: str, default: int) -> int:
        """Return an option as an integer, or `default` if the option is absent or "None"."""
        text = self.texts[name] if self.has(name) else str(default)
        try:
            value = int(text)
        except ValueError as error:
            raise self._misfit(name, "an integer") from error
        if abs(value) >= 2**63:
            raise self._misfit(name, "a number of 64 bits")
        return value

    def number(self, name: str, default: float) -> float:
        """Return an option as a float, or `default` if the option is absent or "None"."""
        try:
            return float(self.texts[name]) if self.has(name) else default
        except ValueError as error:
            raise self._misfit(name, "a number") from error

    def integers(self, name: str) -> list[int]:
        """Return the integers in an option such as "(2, 2)" or "2"; [] if the option is absent."""
        numbers = self.optional_integers(name)
        if None in numbers:
            raise self._misfit(name, "integers")
        return [item for item in numbers if item is not None]

    def optional_integers(self, name: str) -> list[int | None]:
        """Return the items of an option such as "(None, 2)"; [] if the option is absent."""
        if not self.has(name):
            return []
        words = self.texts[name].strip("()[] ").split(",")
        try:
            return [
                None if word.strip() == "None" else int(word.strip().rstrip("L"))
                for word in words
                if word.strip()
            ]
        except ValueError as error:
            raise self._misfit(name, "integers such as (2, 2)") from error

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """Return an option that must be one of the allowed words (default: the first word)."""
        text = self.texts.get(name, allowed[0])
        if text not in allowed:
            raise self._misfit(name, ", ".join(allowed))
        return text

    def _misfit(self, name: str, allowed: str) -> UsageError:
        return UsageError(f"{self.where}: {name} is {self.texts[name][:80]!r}; allowed: {allowed}")


@dataclass(frozen=True)
class SymbolNode:
    """A node of a network: a variable if `op` is "null", else an operation."""

    op: str
    name: str
    inputs: list[tuple[int, int]]  # pairs: number of a node, and number of one of its outputs
    options: SymbolOptions


@dataclass(frozen=True)
class Symbol:
    """A network: the nodes on which its outputs depend, in an order in which they can run.

    The key of a node is its number in the file.
    """

    nodes: dict[int, SymbolNode]
    heads: list[tuple[int, int]]  # outputs of the network, as pairs like those of `inputs`
    names: list[str] = field(default_factory=list[str])  # names of the heads


def read_symbol(path: Path) -> Symbol:
    """Read the network in a file; raise UsageError if the file is unreadable or has no network."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {reason_of(error)}") from error
    try:
        nodes = [_node(item, number) for number, item in enumerate(content["nodes"])]
        heads = [_entry(item, len(nodes)) for item in content["heads"]]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(
            f"{path}: this is no symbol file of MXNet: {type(error).__name__} {error}"
        ) from error
    _add_states(nodes)
    used = _used(nodes, heads)
    needed = {number: node for number, node in enumerate(nodes) if number in used}
    return Symbol(needed, heads, [nodes[number].name for number, _ in heads])


def _node(item: Any, number: int) -> SymbolNode:
    op, name = str(item["op"]), str(item["name"])
    # Older versions call the attributes `param`, and the attributes that a user adds `attr`.
    pairs: dict[Any, Any] = {
        **item.get("attr", {}),
        **item.get("param", {}),
        **item.get("attrs", {}),
    }
    inputs = [_entry(entry, number) for entry in item["inputs"]]
    if op in LOSSES:
        inputs = inputs[:1]
    texts = {str(key): str(value) for key, value in pairs.items()}
    return SymbolNode(op, name, inputs, SymbolOptions(f"{name} ({op})", texts))


def _add_states(nodes: list[SymbolNode]) -> None:
    """Add the means and variances of batch norms, which older files (before 0.9) do not list."""
    for node in list(nodes):
        if node.op == "BatchNorm" and len(node.inputs) == 3:
            for state in ("moving_mean", "moving_var"):
                name = f"{node.name}_{state}"
                node.inputs.append((len(nodes), 0))
                nodes.append(SymbolNode(VARIABLE, name, [], SymbolOptions(name, {})))


def _entry(entry: Any, before: int) -> tuple[int, int]:
    number, output = int(entry[0]), int(entry[1])
    if not 0 <= number < before or output < 0:
        raise ValueError(f"{entry} is no output of an earlier node")
    return number, output


def _used(nodes: Sequence[SymbolNode], heads: Sequence[tuple[int, int]]) -> set[int]:
    used: set[int] = set()
    waiting = [number for number, _ in heads]
    while waiting:
        number = waiting.pop()
        if number not in used:
            used.add(number)
            waiting += [other for other, _ in nodes[number].inputs]
    return used
