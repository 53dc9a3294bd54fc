"""Report the size of the source per folder, and fail if a file or function exceeds its budget.

There are budgets for the lines of a file, for the lines and the parameters of a function, and for
the number of modules in a package folder. A hot loop or a state machine may exceed the budget of a
function if the line above it gives a reason: `// over budget: REASON` (C++) or `# over budget:
REASON` (Python). Functions of commands may have any number of parameters, because each parameter is
an option.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_LINES = 600
FUNCTION_LINES = 80
FILE_LINES_SOFT = 350
FUNCTION_LINES_SOFT = 40
# parameters of a Python function, except self and cls; more belong in a dataclass of options
PARAMETERS = 8
MODULES = 22  # Python modules in a folder of src or tools, without those of its subfolders

CPP = {".cc", ".h"}
SOURCE = CPP | {".py", ".ts", ".tsx"}
BAD_NAME = re.compile(
    r"^(utils?|helpers?|common|misc|legacy)$|(_|-)(utils?|helpers?|v\d+|new|old|legacy|enhanced)$"
)
# Users of Horovod import from modules with these names.
HOROVOD_NAMES = tuple(Path("src/slipstream/horovod", name) for name in ("common", "runner"))
# Users of Horovod call these functions, which have Horovod's parameters.
HOROVOD_SIGNATURES = {
    Path("src/slipstream/horovod/ray/executor.py"): "__init__",
    Path("src/slipstream/horovod/torch/optimizer.py"): "DistributedOptimizer",
}
# The public functions in this folder are commands, whose parameters are options.
COMMANDS = Path("src/slipstream/cli")
EXEMPTION = re.compile(r"(//|#) over budget: \S")
# After these keywords, a brace does not begin a function.
SCOPE = re.compile(r"\b(namespace|class|struct|enum|union|extern)\b[^()]*$")
CPP_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"\((?:.*?)\)\"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


@dataclass(frozen=True)
class Function:
    """A function and its place in a file.

    Args:
        name: Name of the function.
        first: Line number of the first line, counted from 1.
        last: Line number of the last line, reduced by the length of the docstring, so that `lines`
            does not count the docstring.
        parameters: Number of parameters except self and cls; 0 in C++, where parameters are not
            counted.
    """

    name: str
    first: int
    last: int
    parameters: int = 0

    @property
    def lines(self) -> int:
        """Number of lines without the docstring."""
        return self.last - self.first + 1


def python_functions(text: str) -> Iterator[Function]:
    """Yield every function of a Python module; docstrings are not counted."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first, last = node.lineno, node.end_lineno or node.lineno
            if ast.get_docstring(node) is not None:
                docstring = node.body[0]
                last -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
            yield Function(node.name, first, last, count_parameters(node.args))


def count_parameters(arguments: ast.arguments) -> int:
    """Return the number of a function's parameters except self and cls."""
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(parameter.arg not in ("self", "cls") for parameter in parameters)


def cpp_functions(text: str) -> Iterator[Function]:
    """Yield every outermost brace block except namespaces, types and initialisers of variables."""
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
    """Return the line ends of a match, without its other characters."""
    return "\n" * match.group().count("\n")


def function_name(head: str) -> str:
    """Return the identifier before the first parenthesis of a signature."""
    names = re.findall(r"([\w:~<>]+)\s*\(", head)
    return names[0] if names else head.strip()


def tracked_sources(root: Path) -> list[Path]:
    """Return the source files that git tracks or does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return [
        Path(line)
        for line in sorted(set(listed.splitlines()))
        if Path(line).suffix in SOURCE and (root / line).is_file()
    ]


def functions_of(path: Path, text: str) -> list[Function]:
    """Return the functions in a file; none if its language is not measured."""
    if path.suffix == ".py":
        return list(python_functions(text))
    return list(cpp_functions(text)) if path.suffix in CPP else []


def problems_of(path: Path, text: str, functions: list[Function]) -> list[str]:
    """Return a message for each exceeded budget of a file and each vague name in its path.

    A vague name is one like "utils" or "helpers".
    """
    lines = text.splitlines()
    problems = [
        f"{path}: {part!r} names no concept; name the file or folder after its content"
        for part in (*path.parts[:-1], path.stem)
        if BAD_NAME.search(part) and not any(path.is_relative_to(name) for name in HOROVOD_NAMES)
    ]
    if len(lines) > FILE_LINES:
        problems.append(f"{path}: {len(lines)} lines; a file has at most {FILE_LINES}: split it")
    for function in functions:
        above = lines[max(function.first - 2, 0)]
        if EXEMPTION.search(above):
            continue
        if has_too_many_parameters(path, function):
            problems.append(
                f"{path}:{function.first}: {function.name} has {function.parameters} parameters; a"
                f" function has at most {PARAMETERS}: make a frozen dataclass of the options"
            )
        if function.lines > FUNCTION_LINES:
            problems.append(
                f"{path}:{function.first}: {function.name} has {function.lines} lines; "
                f"a function has at most {FUNCTION_LINES}: split it"
            )
    return problems


def has_too_many_parameters(path: Path, function: Function) -> bool:
    """Return whether a function has more parameters than its budget allows."""
    is_command = path.is_relative_to(COMMANDS) and not function.name.startswith("_")
    is_given = HOROVOD_SIGNATURES.get(path) == function.name
    return function.parameters > PARAMETERS and not (is_command or is_given)


def crowded_folders(paths: Iterable[Path]) -> list[str]:
    """Return a message for each package folder with too many modules.

    Folders of C++ have no limit, because a header and its source together are one module.
    """
    counts = Counter(
        path.parent for path in paths if path.suffix == ".py" and path.parts[0] in ("src", "tools")
    )
    return [
        f"{folder}: {count} modules; a folder has at most {MODULES}: make subfolders that answer a"
        " question each"
        for folder, count in sorted(counts.items())
        if count > MODULES
    ]


def main() -> int:
    """Print a row for each folder, and every problem; return 1 if there are any problems."""
    root = Path(__file__).parent.parent
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    paths = tracked_sources(root)
    problems = crowded_folders(paths)
    for path in paths:
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
    """Print each folder's files and lines, and how many files and functions are long."""
    print(f"{'folder':36} files  lines  files>{FILE_LINES_SOFT}  functions>{FUNCTION_LINES_SOFT}")
    for folder, (files, lines, long_files, long_functions) in sorted(rows.items()):
        print(f"{folder:36} {files:5} {lines:6} {long_files:10} {long_functions:13}")
    total = [sum(column) for column in zip(*rows.values(), strict=True)] if rows else [0, 0, 0, 0]
    print(f"{'total':36} {total[0]:5} {total[1]:6} {total[2]:10} {total[3]:13}")


if __name__ == "__main__":
    sys.exit(main())
