"""Sites of a C++ file: the places that can be mutated, found by patterns of tokens.

A parser is not needed, because clang-format puts spaces only around binary operators: `a < b` and
`a * b` differ from `vector<T>` and `T* x`. A change that does not compile is not a valid mutant,
and is replaced by another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .sites import Site

NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"\((?:.*?)\)\"|\"(?:\\.|[^\"\\\n])*\""
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|\bstatic_assert\([^;]*;",
    re.DOTALL | re.MULTILINE,
)
TEMPLATE = re.compile(r"(?<=\w)<[^<>;(){}]*>")
SWAPPED = {
    "comparison": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "arithmetic": {"+": "-", "-": "+", "*": "/", "/": "*", "+=": "-=", "-=": "+="},
    "and/or": {"&&": "||", "||": "&&"},
}
OPERATOR = re.compile(r"(?<= )(?:[<>=!]=|[<>+\-*/]|[+-]=|&&|\|\|)(?=[ \n])")
BOOLEAN = re.compile(r"\b(?:true|false)\b")
NUMBER = re.compile(r"(?<![\w.'])(\d[\d']*)(?=(?:[uU]?[lL]{0,2}|ns|us|ms|s)(?![\w.']))")
NOT = re.compile(r"!(?=[\w(])")
CALL = re.compile(r"[ ]+((?!return\b|throw\b|delete\b|log_?\()[\w:.\->\[\]()]*\w\(.*\);)")


def blanked(text: str) -> str:
    """Replace everything except code by spaces; offsets do not change."""
    return TEMPLATE.sub(spaces, NOISE.sub(spaces, text))


def spaces(match: re.Match[str]) -> str:
    """Replace all characters of a match except line ends by spaces."""
    return re.sub(r"[^\n]", " ", match.group())


def cpp_sites(text: str) -> list[Site]:
    """Return all sites of a file, in the order of the text."""
    code = blanked(text)
    found = [*operators(code), *booleans(code), *numbers(code), *negations(code), *calls(code)]
    return sorted(found, key=lambda site: (site.start, site.end, site.operator))


def operators(code: str) -> Iterator[Site]:
    """Yield changes of comparison, additive, multiplicative and logical operators."""
    for match in OPERATOR.finditer(code):
        for operator, swapped in SWAPPED.items():
            if match.group() in swapped:
                yield Site(match.start(), match.end(), swapped[match.group()], operator)


def booleans(code: str) -> Iterator[Site]:
    """Yield changes of true to false, and of false to true."""
    for match in BOOLEAN.finditer(code):
        new = "false" if match.group() == "true" else "true"
        yield Site(match.start(), match.end(), new, "boolean")


def numbers(code: str) -> Iterator[Site]:
    """Yield increments of integers by one; octal integers are left out."""
    for match in NUMBER.finditer(code):
        digits = match.group(1).replace("'", "")
        if digits == "0" or not digits.startswith("0"):
            yield Site(match.start(1), match.end(1), str(int(digits) + 1), "constant")


def negations(code: str) -> Iterator[Site]:
    """Yield removals of `!`."""
    for match in NOT.finditer(code):
        yield Site(match.start(), match.end(), "", "not removed")


def calls(code: str) -> Iterator[Site]:
    """Yield removals of statements that consist of one call and have a line of their own."""
    lines = code.split("\n")
    start = 0
    for before, line in zip(["", *lines], lines, strict=False):
        match = CALL.fullmatch(line.rstrip())
        if match and before.rstrip()[-1:] in ("", ";", "{", "}", ":"):
            yield Site(start + match.start(1), start + match.end(1), "{}", "statement deleted")
        start += len(line) + 1
