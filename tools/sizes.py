"""Reports the size of the source per folder, and fails on files and functions over the budget.

A hot loop or a state machine may exceed the budget of a function when the line above it says why:
`// over budget: REASON` (C++) or `# over budget: REASON` (Python).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_LINES = 600
FUNCTION_LINES = 80
FILE_LINES_SOFT = 350
FUNCTION_LINES_SOFT = 40

CPP = {".cc", ".h"}
SOURCE = CPP | {".py", ".ts", ".tsx"}
BAD_NAME = re.compile(
    r"^(utils?|helpers?|common|misc|legacy)$|(_|-)(utils?|helpers?|v\d+|new|old|legacy|enhanced)$"
)
# Horovod's users import from modules of these names.
GIVEN_NAMES = tuple(Path("src/slipstream/horovod", name) for name in ("common", "runner"))
EXEMPTION = re.compile(r"(//|#) over budget: \S")
# What may open a brace without being a function.
SCOPE = re.compile(r"\b(namespace|class|struct|enum|union|extern)\b[^()]*$")
CPP_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"\((?:.*?)\)\"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


@dataclass(frozen=True)
class Function:
    """A function and its lines, without its docstring: counted from 1, both ends included."""

    name: str
    first: int
    last: int

    @property
    def lines(self) -> int:
        return self.last - self.first + 1


def python_functions(text: str) -> Iterator[Function]:
    """Every function of a Python module; a docstring does not count as length."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first, last = node.lineno, node.end_lineno or node.lineno
            if ast.get_docstring(node) is not None:
                docstring = node.body[0]
                last -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
            yield Function(node.name, first, last)


def cpp_functions(text: str) -> Iterator[Function]:
    """Every outermost brace block that is no namespace, type or initialiser of a variable."""
    clean = CPP_NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    clean = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank_lines, clean, flags=re.MULTILINE)
    scopes: list[Function | None] = []
    start = 0
    for match in re.finditer(r"[{};]", clean):
        inside_function = any(scope is not None for scope in scopes)
        if match.group() == "{":
            head = clean[start : match.start()]
            is_scope = SCOPE.search(head) is not None or "(" not in head
            if inside_function or is_scope:
                scopes.append(None)
            else:
                first = clean.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
                scopes.append(Function(function_name(head), first, 0))
        elif match.group() == "}" and scopes:
            opened = scopes.pop()
            if opened is not None:
                last = clean.count("\n", 0, match.start()) + 1
                yield Function(opened.name, opened.first, last)
        start = match.end()


def blank_lines(match: re.Match[str]) -> str:
    """As many empty lines as the match spans."""
    return "\n" * match.group().count("\n")


def function_name(head: str) -> str:
    """The identifier before the first parenthesis of a signature."""
    names = re.findall(r"([\w:~<>]+)\s*\(", head)
    return names[0] if names else head.strip()


def tracked_sources(root: Path) -> list[Path]:
    """The source files under version control or about to be, apart from generated ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return [
        Path(line)
        for line in sorted(set(listed.splitlines()))
        if Path(line).suffix in SOURCE and (root / line).is_file()
    ]


def functions_of(path: Path, text: str) -> list[Function]:
    """The functions of one file; none for languages that are not measured."""
    if path.suffix == ".py":
        return list(python_functions(text))
    return list(cpp_functions(text)) if path.suffix in CPP else []


def problems_of(path: Path, text: str, functions: list[Function]) -> list[str]:
    """What one file does against the budget and the naming rule."""
    lines = text.splitlines()
    problems = [
        f"{path}: {part!r} names no concept; name the file or folder after what it holds"
        for part in (*path.parts[:-1], path.stem)
        if BAD_NAME.search(part) and not any(path.is_relative_to(each) for each in GIVEN_NAMES)
    ]
    if len(lines) > FILE_LINES:
        problems.append(f"{path}: {len(lines)} lines; a file has at most {FILE_LINES}: split it")
    for function in functions:
        above = lines[max(function.first - 2, 0)]
        if function.lines > FUNCTION_LINES and not EXEMPTION.search(above):
            problems.append(
                f"{path}:{function.first}: {function.name} has {function.lines} lines; "
                f"a function has at most {FUNCTION_LINES}: split it"
            )
    return problems


def main() -> int:
    """Prints one row per folder and every breach; returns 1 when there is a breach."""
    root = Path(__file__).parent.parent
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    problems: list[str] = []
    for path in tracked_sources(root):
        text = (root / path).read_text(encoding="utf-8")
        functions = functions_of(path, text)
        problems += problems_of(path, text, functions)
        row = rows[
            str(Path(*path.parts[:3]).parent if len(path.parts) <= 3 else Path(*path.parts[:3]))
        ]
        lines = len(text.splitlines())
        row[0] += 1
        row[1] += lines
        row[2] += lines > FILE_LINES_SOFT
        row[3] += sum(function.lines > FUNCTION_LINES_SOFT for function in functions)
    print_report(rows)
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


def print_report(rows: dict[str, list[int]]) -> None:
    """The table: files, lines, and how many files and functions are over the soft budget."""
    print(f"{'folder':36} files  lines  files>{FILE_LINES_SOFT}  functions>{FUNCTION_LINES_SOFT}")
    for folder, (files, lines, long_files, long_functions) in sorted(rows.items()):
        print(f"{folder:36} {files:5} {lines:6} {long_files:10} {long_functions:13}")
    total = [sum(column) for column in zip(*rows.values(), strict=True)] if rows else [0, 0, 0, 0]
    print(f"{'total':36} {total[0]:5} {total[1]:6} {total[2]:10} {total[3]:13}")


if __name__ == "__main__":
    sys.exit(main())
