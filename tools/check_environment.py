"""Checks that environment variables are named and read in slipstream.settings only.

Elsewhere the whole mapping may be handed on (to a child process), but no variable of it is looked
up, and no literal outside a docstring spells a SLIPSTREAM_ name. The engine reads none at all.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

NAME = re.compile(r"\bSLIPSTREAM_[A-Z][A-Z_]*\b")
CPP_READ = re.compile(r"\b(secure_)?getenv\s*\(")
LOOKUPS = {"get", "pop", "setdefault"}


def is_environ(node: ast.expr) -> bool:
    """Whether the expression is `os.environ` or a bare `environ`."""
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )


def is_lookup(node: ast.AST) -> bool:
    """Whether the node reads or writes one variable."""
    if isinstance(node, ast.Subscript):
        return is_environ(node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("getenv", "putenv"):
        return True
    return node.func.attr in LOOKUPS and is_environ(node.func.value)


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of the constants that are docstrings (of attributes too)."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def python_problems(path: Path) -> Iterator[str]:
    """What one Python module does against the rule."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if is_lookup(node):
            yield f"{path}:{getattr(node, 'lineno', 0)}: reads one environment variable"
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            for name in NAME.findall(node.value):
                yield f"{path}:{node.lineno}: spells {name}"


def cpp_problems(path: Path) -> Iterator[str]:
    """What one C++ file does against the rule."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if CPP_READ.search(line.split("//")[0]):
            yield f"{path}:{number}: reads the environment; take a value from Python"


def problems(root: Path) -> list[str]:
    """Every breach in the tree under `root`."""
    package = root / "src" / "slipstream"
    found: list[str] = []
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] not in ("settings", "settings.py"):
            found += python_problems(path)
    for folder in (root / "core", root / "bindings"):
        for path in sorted([*folder.rglob("*.cc"), *folder.rglob("*.h")]):
            found += cpp_problems(path)
    return found


def main() -> int:
    """Prints the breaches of the tree given (default: this one); returns 1 when there are any."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    found = problems(root)
    if found:
        print("\n".join(found), file=sys.stderr)
        print(
            "declare the variable in slipstream.settings and hand its value down", file=sys.stderr
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
