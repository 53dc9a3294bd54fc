"""Check the language of the source: docstrings, help texts and class names.

- The docstring of a function begins with an imperative verb ("Return the ..."), and the docstring
  of a property begins with a noun. The docstring of a test is a sentence about the tested case.
- A line of `Args:` and a help text begin with a noun phrase or a verb, never with a word that
  depends on something before it ("of", "that", "what").
- Outside tests, a class name is declared only once, except the names in `SHARED_NAMES`.

Usage: check_language.py [FILE_OR_FOLDER ...]; default: src.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src")
# Class names that users of Horovod import from our modules, and that other modules declare, too.
SHARED_NAMES = frozenset({"ObjectState", "State"})

HEADLESS = re.compile(
    "of|that|what|which|whose|how|when|where|in|as|with|by|for|to|from|at|on|than|those"
)
# A docstring that begins with one of these words does not begin with a verb.
NO_VERBS = re.compile(
    HEADLESS.pattern + "|the|a|an|this|these|every|each|all|its|whether|why|it|one|two|some|several"
    "|none|both|no|any|such|there|true|false"
)
# Imperatives that end in -s.
IMPERATIVES_IN_S = re.compile("(com|ex)?press|pass|process|access|address|bypass|cross|discuss")
ARGUMENTS = re.compile(r"^Args:\n((?:[ \t]+\S.*\n?|\n)+)", re.MULTILINE)
ARGUMENT = re.compile(r"^ {4}(\*{0,2}\w+)(?: \([^)]*\))?: *(\S+)", re.MULTILINE)
HELP_KEYWORDS = ("help", "short_help", "description")

Documented = ast.FunctionDef | ast.AsyncFunctionDef
Finding = tuple[int, str]


def first_word(text: str) -> str:
    """Return the first word of a sentence, in lower case and without its punctuation."""
    words = text.split(maxsplit=1)
    return words[0].strip(".,:;()`'\"").lower() if words else ""


def is_property(node: Documented) -> bool:
    """Return whether a function is a property, whose docstring is a noun phrase."""
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def is_test(node: Documented) -> bool:
    """Return whether a function is a test, whose docstring is a sentence about its case."""
    return node.name.startswith("test_")


def check_voice(node: Documented, docstring: str) -> Iterator[Finding]:
    """Yield a finding if a function's docstring does not begin with an imperative verb."""
    word = first_word(docstring)
    noun_or_third_person = word.endswith("s") and not IMPERATIVES_IN_S.fullmatch(word)
    if NO_VERBS.fullmatch(word) or noun_or_third_person or not word[:1].isalpha():
        yield node.lineno, f"{node.name}: a docstring begins with a verb, not with {word!r}"


def check_arguments(node: ast.AST, name: str, docstring: str) -> Iterator[Finding]:
    """Yield a finding for each line of `Args:` that does not begin with a noun phrase."""
    for section in ARGUMENTS.finditer(docstring):
        for argument, word in ARGUMENT.findall(section.group(1)):
            if HEADLESS.fullmatch(first_word(word)):
                line = getattr(node, "lineno", 1)
                yield line, f"{name}: the line of {argument!r} begins with {word!r}"


def check_help(node: ast.Call) -> Iterator[Finding]:
    """Yield a finding for each help text that begins with neither a noun nor a verb."""
    for keyword in node.keywords:
        value = keyword.value
        if keyword.arg in HELP_KEYWORDS and isinstance(value, ast.Constant):
            word = first_word(str(value.value))
            if HEADLESS.fullmatch(word):
                yield value.lineno, f"a help text begins with {word!r}"


def check_module(tree: ast.Module) -> Iterator[Finding]:
    """Yield the findings of one module, unsorted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from check_help(node)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is None:
                continue
            yield from check_arguments(node, node.name, docstring)
            if isinstance(node, Documented) and not (is_property(node) or is_test(node)):
                yield from check_voice(node, docstring)


def repeated_classes() -> dict[str, list[str]]:
    """Return the class names declared more than once under `SOURCE`, with files and lines."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    return {
        name: lines for name, lines in places.items() if len(lines) > 1 and name not in SHARED_NAMES
    }


def python_files(arguments: list[str]) -> Iterator[Path]:
    """Yield the Python files that the arguments name; without arguments, all sources."""
    for path in map(Path, arguments or [str(SOURCE)]):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main() -> int:
    """Print all findings, and return 1 if there are any."""
    failed = False
    for path in python_files(sys.argv[1:]):
        for line, finding in sorted(check_module(ast.parse(path.read_text()))):
            print(f"{path}:{line}: {finding}")
            failed = True
    for name, places in sorted(repeated_classes().items()):
        print(f"class {name} is declared {len(places)} times: {', '.join(places)}")
        failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
