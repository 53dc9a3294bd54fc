"""Search for the test folders that reach a mutant; other tests can hardly kill the mutant.

Before the statement of each mutant, a line of code is inserted that writes the name of the running
test to a file. With these lines, a single run of `make test` is enough for many mutants. The result
is a list of test folders, because the tests in a folder share fixtures and servers. For C++, which
is not examined, the result is all tests. The result is also all tests for statements outside
functions, which run when their module is imported. Tests that `make test` leaves out at this commit
are not found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from .draw import Mutant
from .parts import PARTS

NOTES = Path("build/results")
EVERYTHING = "tests"


def note_file(root: Path, mutant: Mutant) -> Path:
    """Return the path of the file that lists the tests that reach a mutant."""
    return root.absolute() / NOTES / f"reached-{mutant.id}.txt"


def texts_with_notes(root: Path, mutants: Iterable[Mutant]) -> dict[Path, str]:
    """Return the changed text of each file, with an inserted line for each mutant.

    Mutants are left out if no line can be inserted before their statement.
    """
    texts: dict[Path, list[str]] = {}
    # Insert from the last line upwards, so that the line numbers of earlier mutants stay valid.
    for mutant in sorted(mutants, key=lambda mutant: -mutant.line):
        path = root / mutant.file
        text = path.read_text(encoding="utf-8")
        start = None if PARTS[mutant.part].is_cpp else statement_line(text, mutant.line)
        if start is None:
            continue
        lines = texts.setdefault(path, text.split("\n"))
        indent = lines[start - 1][: -len(lines[start - 1].lstrip())]
        lines.insert(start - 1, indent + _note(note_file(root, mutant)))
    return {path: "\n".join(lines) for path, lines in texts.items()}


def _note(file: Path) -> str:
    """Return a line of Python that appends the name of the running test to a file."""
    test = '__import__("os").environ.get("PYTEST_CURRENT_TEST", "")'
    return f'with open({str(file)!r}, "a") as _note: _note.write({test} + "\\n")'


def statement_line(text: str, line: int) -> int | None:
    """Return the number of the line on which the innermost statement at `line` begins.

    The result is None outside functions.
    """
    found: int | None = None
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(text), False)]
    while waiting:
        node, is_inside = waiting.pop()
        if is_inside and isinstance(node, ast.stmt) and _begins_its_line(text, node):
            found = max(found or 0, _first_line(node))
        is_inside = is_inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            if _first_line(child) <= line <= _last_line(child):
                waiting.append((child, is_inside))
    return found


def _first_line(node: ast.AST) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([decorator.lineno for decorator in decorators] + [getattr(node, "lineno", 0)])


def _last_line(node: ast.AST) -> int:
    return getattr(node, "end_lineno", None) or 0


def _begins_its_line(text: str, node: ast.stmt) -> bool:
    """Return whether a statement starts its line; an `elif` does not count as a statement."""
    line = text.split("\n")[node.lineno - 1].encode()
    return not line[: node.col_offset].strip() and not line.lstrip().startswith(b"elif")


def folders(root: Path, mutant: Mutant) -> list[str]:
    """Return the test folders that reach a mutant; the folder of all tests if this is unknown."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    if PARTS[mutant.part].is_cpp or statement_line(text, mutant.line) is None:
        return [EVERYTHING]
    file = note_file(root, mutant)
    notes = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    # The empty name comes from a process outside any test, which any test may have started.
    return [EVERYTHING] if "" in notes else sorted({_folder(note) for note in notes})


def _folder(note: str) -> str:
    """Return the folder of a test: a folder in tests or, for unit tests, in tests/unit."""
    parts = Path(note.partition("::")[0]).parts[:-1]
    return "/".join(parts[: 3 if parts[1:2] == ("unit",) else 2])
