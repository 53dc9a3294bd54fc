"""Check that only slipstream.settings reads environment variables.

Other modules may pass all environment variables to a child process, but must not look up a single
variable. No string literal in other modules may be a name that starts with SLIPSTREAM_. Messages
and documents may mention only variables that the settings declare. The C++ engine reads no
environment variables; its test programs may. The net plugin, which NCCL loads, reads declared
variables in one file, and so does the library that leads a lab's ranks to their relay.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

NAME = re.compile(r"\bSLIPSTREAM_[A-Z][A-Z_]*\b")
CPP_READ = re.compile(r"\b(secure_)?getenv\s*\(")
READER = Path("plugin", "options.cc")  # the file in which the plugin reads variables
RELAY_READER = Path("relay", "redirect.cc")  # reads what slipstream.settings.lab sets
LOOKUPS = {"get", "pop", "setdefault"}


def is_environ(node: ast.expr) -> bool:
    """Return whether an expression is `os.environ` or `environ`."""
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )


def is_lookup(node: ast.AST) -> bool:
    """Return whether a node reads or writes a single environment variable."""
    if isinstance(node, ast.Subscript):
        return is_environ(node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("getenv", "putenv"):
        return True
    return node.func.attr in LOOKUPS and is_environ(node.func.value)


def python_problems(path: Path, declared: set[str]) -> Iterator[str]:
    """Yield a message for each violation in a Python module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if is_lookup(node):
            yield f"{path}:{getattr(node, 'lineno', 0)}: reads one environment variable"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if NAME.fullmatch(node.value):
                yield f"{path}:{node.lineno}: {node.value} is a literal"
            for name in set(NAME.findall(node.value)) - declared:
                yield f"{path}:{node.lineno}: {name} does not exist"


def document_problems(path: Path, declared: set[str]) -> Iterator[str]:
    """Yield a message for each environment variable in a document that no setting declares."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for name in set(NAME.findall(line)) - declared:
            yield f"{path}:{number}: {name} does not exist"


def cpp_problems(path: Path) -> Iterator[str]:
    """Yield a message for each violation in a C++ file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if CPP_READ.search(line.split("//")[0]):
            yield f"{path}:{number}: reads the environment; take a value from Python"


def problems(root: Path) -> list[str]:
    """Return a message for each violation in the tree under `root`."""
    settings = sorted((root / "src" / "slipstream" / "settings").rglob("*.py"))
    declared = {name for path in settings for name in NAME.findall(path.read_text("utf-8"))}
    found: list[str] = []
    for path in sorted((root / "src").rglob("*.py")):
        if path not in settings:
            found += python_problems(path, declared)
    tests = (root / "core" / "test", root / "plugin" / "test")
    for folder in (root / "core", root / "bindings", root / "plugin", root / "relay"):
        for path in sorted([*folder.rglob("*.cc"), *folder.rglob("*.h")]):
            is_reader = path in (root / READER, root / RELAY_READER)
            if not is_reader and not any(test in path.parents for test in tests):
                found += cpp_problems(path)
    documents = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *root.glob(str(READER))]
    for path in sorted(documents):
        found += document_problems(path, declared)
    return found


def main() -> int:
    """Print all violations in a tree (default: this checkout); return 1 if there are any."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    found = problems(root)
    if found:
        print("\n".join(found), file=sys.stderr)
        print("declare the variable in slipstream.settings and pass its value on", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
