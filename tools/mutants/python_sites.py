"""Sites of a Python module: the places that can be mutated, found in its syntax tree.

Operators, constants, conditions and statements are mutated. Positions come from `ast`, so that a
change affects only the mutated token. Strings, docstrings, annotations, log and error messages,
`__all__` and `if TYPE_CHECKING` are not mutated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import cast

from .sites import Site

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.In: ("in", "not in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
}
SKIPPED_FIELDS = {"annotation", "returns", "type_params"}
LOGGER = re.compile(r"(?i)_?(log|logger|logging|console)$")


class Source:
    """The text of a module, and the offsets of the nodes in its syntax tree."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def offset(self, line: int, column: int) -> int:
        """Return the text offset of an `ast` position: a line, and a column in UTF-8 bytes."""
        encoded = self._lines[line - 1].encode()
        return self._starts[line - 1] + len(encoded[:column].decode())

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Return the offset of the first character of a node."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Return the offset after the last character of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def between(
        self, left: ast.expr, right: ast.expr, old: str, new: str, operator: str
    ) -> Iterator[Site]:
        """Yield the change of the token `old` between two expressions to `new`."""
        start, end = self.end(left), self.start(right)
        pattern = rf"\b{old}\b" if old.isalpha() else re.escape(old)
        found = re.search(pattern, self.text[start:end])
        if found and "#" not in self.text[start:end]:
            yield Site(start + found.start(), start + found.end(), new, operator)


def python_sites(text: str) -> list[Site]:
    """Return all sites of a module, in the order of the text."""
    found = list(visit(Source(text), ast.parse(text)))
    return sorted(found, key=lambda site: (site.start, site.end, site.operator))


def visit(source: Source, node: ast.AST) -> Iterator[Site]:
    """Yield the sites of a node and of the nodes below it."""
    if is_skipped(node):
        return
    for kind, of_node in FINDERS.items():
        if isinstance(node, kind):
            yield from of_node(source, node)
    for name, value in ast.iter_fields(node):
        if name not in SKIPPED_FIELDS:
            for child in children(value):
                yield from visit(source, child)


def children(value: object) -> Iterator[ast.AST]:
    """Yield the syntax nodes in the value of a field: the value itself, or members of a list."""
    members = cast("list[object]", value) if isinstance(value, list) else [value]
    for member in members:
        if isinstance(member, ast.AST):
            yield member


def is_skipped(node: ast.AST) -> bool:
    """Return whether a node, with all nodes below it, must not be mutated."""
    match node:
        case ast.JoinedStr() | ast.Raise():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return LOGGER.match(name) is not None
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name)))):
            return LOGGER.match(name) is not None
        case ast.Expr(value=ast.Constant()):
            return True
        case _:
            return False


def comparisons(source: Source, node: ast.Compare) -> Iterator[Site]:
    """Yield a change of each operator in a chain of comparisons."""
    operands = [node.left, *node.comparators]
    for n, operator in enumerate(node.ops):
        if type(operator) in COMPARISONS:
            old, new = COMPARISONS[type(operator)]
            yield from source.between(operands[n], operands[n + 1], old, new, "comparison")


def is_text(node: ast.expr) -> bool:
    """Return whether an expression is certainly a string."""
    if isinstance(node, ast.BinOp):
        return is_text(node.left) or is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def arithmetic(source: Source, node: ast.BinOp) -> Iterator[Site]:
    """Yield the change of an operator between numbers."""
    if type(node.op) in ARITHMETIC and not is_text(node):
        old, new = ARITHMETIC[type(node.op)]
        yield from source.between(node.left, node.right, old, new, "arithmetic")


def connectives(source: Source, node: ast.BoolOp) -> Iterator[Site]:
    """Yield changes of `and` to `or`, and of `or` to `and`."""
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in zip(node.values, node.values[1:], strict=False):
        yield from source.between(left, right, old, new, "and/or")


def negations(source: Source, node: ast.UnaryOp) -> Iterator[Site]:
    """Yield the removal of `not`."""
    if isinstance(node.op, ast.Not):
        start = source.start(node)
        found = re.compile(r"not\s*").match(source.text, start)
        assert found is not None
        yield Site(start, found.end(), "", "not removed")


def constants(source: Source, node: ast.Constant) -> Iterator[Site]:
    """Yield the increment of a number by one, or the change of True to False and back."""
    value = node.value
    span = (source.start(node), source.end(node))
    if isinstance(value, bool):
        yield Site(*span, str(not value), "boolean")
    elif isinstance(value, (int, float)) and value + 1 != value:
        yield Site(*span, repr(value + 1), "constant")


def conditions(source: Source, node: ast.If) -> Iterator[Site]:
    """Yield the negation of the condition of an `if`."""
    if not (isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)):
        start, end = source.start(node.test), source.end(node.test)
        yield Site(start, end, f"not ({source.text[start:end]})", "condition negated")


def returns(source: Source, node: ast.Return) -> Iterator[Site]:
    """Yield the change of a returned value to None."""
    is_none = isinstance(node.value, ast.Constant) and node.value.value is None
    if node.value is not None and not is_none:
        yield Site(source.start(node), source.end(node), "return None", "returns None")


def deletions(source: Source, node: ast.stmt) -> Iterator[Site]:
    """Yield the removal of a statement that has a side effect."""
    is_attribute = isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Attribute) for target in node.targets
    )
    if is_attribute or isinstance(node, (ast.Expr, ast.AugAssign)):
        yield Site(source.start(node), source.end(node), "pass", "statement deleted")


def breaks(source: Source, node: ast.Break) -> Iterator[Site]:
    """Yield the change of `break` to `continue`."""
    yield Site(source.start(node), source.end(node), "continue", "break to continue")


FINDERS: dict[type[ast.AST], Callable[[Source, ast.AST], Iterator[Site]]] = {
    ast.Compare: comparisons,
    ast.BinOp: arithmetic,
    ast.BoolOp: connectives,
    ast.UnaryOp: negations,
    ast.Constant: constants,
    ast.If: conditions,
    ast.Return: returns,
    ast.stmt: deletions,
    ast.Break: breaks,
}  # pyright: ignore[reportAssignmentType]
