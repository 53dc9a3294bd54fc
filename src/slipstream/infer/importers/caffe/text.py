"""Protobuf's text format, as .prototxt files have it, without a schema.

The grammar is that of https://protobuf.dev/reference/protobuf/textformat-spec/, less extensions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.errors import UsageError

TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>[-+]?[A-Za-z0-9_.][\w.+]*(?:(?<=[eE])-\d+)?)
    |(?P<mark>[{}<>:;,\[\]])""",
    re.VERBOSE,
)
CLOSING = {"{": "}", "<": ">"}
DEEPEST = 50
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True)
class Token:
    """A piece of the text: a word, a string without its quotes, or a mark."""

    kind: str
    text: str
    line: int


@dataclass
class Message:
    """Fields by name, each with all its values; words and strings are texts.

    Every reader takes what it gives where the field is absent, and raises UsageError for values of
    another kind. Where a field is given more than once, the last counts, as in protobuf.
    """

    where: str
    fields: dict[str, list[str | Message]] = field(default_factory=dict[str, "list[str | Message]"])

    def has(self, name: str) -> bool:
        """Tell whether the field is present."""
        return name in self.fields

    def message(self, name: str) -> Message:
        """Return a nested message, empty if it is absent."""
        found = self.messages(name)
        return found[-1] if found else Message(f"{self.where} {name}")

    def messages(self, name: str) -> list[Message]:
        """Return all nested messages of this name."""
        found = self.fields.get(name, [])
        result = [item for item in found if isinstance(item, Message)]
        if len(result) != len(found):
            raise UsageError(f"{self.where}: {name} is a value; it must be {{ ... }}")
        for item in result:
            item.where = f"{self.where} {name}"
        return result

    def texts(self, name: str) -> list[str]:
        """Return all values of a field as they are written."""
        found = self.fields.get(name, [])
        result = [item for item in found if isinstance(item, str)]
        if len(result) != len(found):
            raise UsageError(f"{self.where}: {name} is a message; it must be a value")
        return result

    def text(self, name: str, default: str = "") -> str:
        """Return a string."""
        found = self.texts(name)
        return found[-1] if found else default

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """A word of those that are allowed, or its number among them; default the first."""
        text = self.text(name, allowed[0])
        if text.isdecimal() and int(text) < len(allowed):
            text = allowed[int(text)]
        if text not in allowed:
            raise self._strange(name, text, ", ".join(allowed))
        return text

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value."""
        words = {"true": True, "True": True, "t": True, "1": True}
        words |= {"false": False, "False": False, "f": False, "0": False}
        text = self.text(name, str(default))
        if text not in words:
            raise self._strange(name, text, "true, false")
        return words[text]

    def integers(self, name: str) -> list[int]:
        """Return all values of an integer field."""
        return [self._integer(name, text) for text in self.texts(name)]

    def integer(self, name: str, default: int) -> int:
        """Return an integer."""
        found = self.texts(name)
        return self._integer(name, found[-1]) if found else default

    def numbers(self, name: str) -> list[float]:
        """Return all values of a numeric field."""
        return [self._number(name, text) for text in self.texts(name)]

    def number(self, name: str, default: float) -> float:
        """Return a number."""
        found = self.texts(name)
        return self._number(name, found[-1]) if found else default

    def _integer(self, name: str, text: str) -> int:
        try:
            value = int(text, 0)
        except ValueError as error:
            raise self._strange(name, text, "a whole number") from error
        if abs(value) >= 2**63:
            raise self._strange(name, text, "a number of 64 bits")
        return value

    def _number(self, name: str, text: str) -> float:
        try:
            return float(text.rstrip("fF") if text[-3:].lower() != "inf" else text)
        except ValueError as error:
            raise self._strange(name, text, "a number") from error

    def _strange(self, name: str, text: str, allowed: str) -> UsageError:
        return UsageError(f"{self.where}: {name} is {text[:80]!r}; allowed: {allowed}")


def read_text(path: Path) -> Message:
    """Read the message of a file; UsageError if it is unreadable or not of this format."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return parse(text, str(path))


def parse(text: str, where: str) -> Message:
    """Parse a text as a message; errors call it `where` and name the line."""
    return _TextParser(_tokens(text, where), where).fields_until("", where, 0)


def _tokens(text: str, where: str) -> list[Token]:
    found: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise UsageError(f"{where}:{line}: {text[at : at + 20]!r} is no prototxt")
        kind, piece = match.lastgroup or "", match[0]
        if kind == "string":
            found.append(Token(kind, _unescaped(piece[1:-1]), line))
        elif kind != "space":
            found.append(Token(kind, piece, line))
        line += piece.count("\n")
        at = match.end()
    return [*found, Token("end", "", line)]


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)


class _TextParser:
    def __init__(self, tokens: Sequence[Token], where: str) -> None:
        self._tokens = tokens
        self._where = where
        self._at = 0

    def fields_until(self, end: str, where: str, depth: int) -> Message:
        """Parse fields up to the end mark, which is "" for the end of the file."""
        if depth > DEEPEST:
            raise self._trouble(f"messages deeper than {DEEPEST}")
        message = Message(where)
        while self._next.text != end or self._next.kind not in ("mark", "end"):
            name = self._taken("word").text
            values = self._values(f"{where} {name}", depth)
            message.fields.setdefault(name, []).extend(values)
            while self._next.kind == "mark" and self._next.text in ",;":
                self._at += 1
        if end:
            self._at += 1
        return message

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _taken(self, kind: str) -> Token:
        token = self._next
        if token.kind != kind:
            raise self._trouble(f"{token.text[:40]!r} stands where a {kind} belongs")
        self._at += 1
        return token

    def _is_mark(self, marks: str) -> bool:
        return self._next.kind == "mark" and self._next.text in marks

    def _values(self, where: str, depth: int) -> list[str | Message]:
        has_colon = self._is_mark(":")
        if has_colon:
            self._at += 1
        if not self._is_mark("["):
            return [self._value(where, depth, has_colon)]
        self._at += 1
        found: list[str | Message] = []
        while not self._is_mark("]"):
            found.append(self._value(where, depth, True))
            if self._is_mark(","):
                self._at += 1
        self._at += 1
        return found

    def _value(self, where: str, depth: int, has_colon: bool) -> str | Message:
        if self._is_mark("{<"):
            closing = CLOSING[self._taken("mark").text]
            return self.fields_until(closing, where, depth + 1)
        if not has_colon:
            raise self._trouble(f"{self._next.text[:40]!r} stands where ':' or '{{' belongs")
        if self._next.kind != "string":
            return self._taken("word").text
        text = ""
        while self._next.kind == "string":
            text += self._taken("string").text
        return text

    def _trouble(self, what: str) -> UsageError:
        return UsageError(f"{self._where}:{self._next.line}: {what}")
