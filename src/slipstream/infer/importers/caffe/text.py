"""Parser of protobuf's text format, the format of .prototxt files, without a schema.

The grammar is specified in https://protobuf.dev/reference/protobuf/textformat-spec/; extensions are
not supported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.errors import UsageError, reason_of

TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>[-+]?[A-Za-z0-9_.][\w.+]*(?:(?<=[eE])-\d+)?)
    |(?P<mark>[{}<>:;,\[\]])""",
    re.VERBOSE,
)
CLOSING = {"{": "}", "<": ">"}
DEEPEST = 50  # nesting of messages; chosen by hand, so damaged files cannot exhaust the stack
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True)
class Token:
    """A token of the text: a word, a string without its quotes, or a punctuation mark."""

    kind: str
    text: str
    line: int


@dataclass
class Message:
    """The fields of a message by name: for each field, the list of its values.

    A value is a text (a word, a number or a string) or a nested message. A method that reads a
    field returns a default value if the field is absent, and raises UsageError if the field's value
    has another type. If a field occurs more than once, the last value counts, as in protobuf.
    """

    where: str
    fields: dict[str, list[str | Message]] = field(default_factory=dict[str, "list[str | Message]"])

    def has(self, name: str) -> bool:
        """Return whether the field is present."""
        return name in self.fields

    def message(self, name: str) -> Message:
        """Return a nested message, or an empty message if the field is absent."""
        messages = self.messages(name)
        return messages[-1] if messages else Message(f"{self.where} {name}")

    def messages(self, name: str) -> list[Message]:
        """Return all nested messages in the field `name`."""
        values = self.fields.get(name, [])
        result = [item for item in values if isinstance(item, Message)]
        if len(result) != len(values):
            raise UsageError(f"{self.where}: {name} is a value; allowed: a message in {{ }}")
        for item in result:
            item.where = f"{self.where} {name}"
        return result

    def texts(self, name: str) -> list[str]:
        """Return all values of a field as text, without conversion."""
        values = self.fields.get(name, [])
        result = [item for item in values if isinstance(item, str)]
        if len(result) != len(values):
            raise UsageError(f"{self.where}: {name} is a message; allowed: a value")
        return result

    def text(self, name: str, default: str = "") -> str:
        """Return the value of a text field."""
        texts = self.texts(name)
        return texts[-1] if texts else default

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """Return one of `allowed` (default: the first); a number in the file is an index in it."""
        text = self.text(name, allowed[0])
        if text.isdecimal() and int(text) < len(allowed):
            text = allowed[int(text)]
        if text not in allowed:
            raise self._misfit(name, text, ", ".join(allowed))
        return text

    def flag(self, name: str, default: bool) -> bool:
        """Return the value of a boolean field."""
        words = {"true": True, "True": True, "t": True, "1": True}
        words |= {"false": False, "False": False, "f": False, "0": False}
        text = self.text(name, str(default))
        if text not in words:
            raise self._misfit(name, text, "true, false")
        return words[text]

    def integers(self, name: str) -> list[int]:
        """Return all values of an integer field."""
        return [self._integer(name, text) for text in self.texts(name)]

    def integer(self, name: str, default: int) -> int:
        """Return the value of an integer field."""
        texts = self.texts(name)
        return self._integer(name, texts[-1]) if texts else default

    def numbers(self, name: str) -> list[float]:
        """Return all values of a numeric field."""
        return [self._number(name, text) for text in self.texts(name)]

    def number(self, name: str, default: float) -> float:
        """Return the value of a numeric field."""
        texts = self.texts(name)
        return self._number(name, texts[-1]) if texts else default

    def _integer(self, name: str, text: str) -> int:
        try:
            value = int(text, 0)
        except ValueError as error:
            raise self._misfit(name, text, "an integer") from error
        if abs(value) >= 2**63:
            raise self._misfit(name, text, "a number of 64 bits")
        return value

    def _number(self, name: str, text: str) -> float:
        try:
            return float(text.rstrip("fF") if text[-3:].lower() != "inf" else text)
        except ValueError as error:
            raise self._misfit(name, text, "a number") from error

    def _misfit(self, name: str, text: str, allowed: str) -> UsageError:
        return UsageError(f"{self.where}: {name} is {text[:80]!r}; allowed: {allowed}")


def read_text(path: Path) -> Message:
    """Read the message in a file; raise UsageError if it is unreadable or has another format."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {reason_of(error)}") from error
    return parse(text, str(path))


def parse(text: str, where: str) -> Message:
    """Parse a text as a message.

    Args:
        where: Name of the text in error messages, which add the line number.
    """
    return _TextParser(_tokens(text, where), where).fields_until("", where, 0)


def _tokens(text: str, where: str) -> list[Token]:
    tokens: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise UsageError(f"{where}:{line}: {text[at : at + 20]!r} is not valid in a prototxt")
        kind, piece = match.lastgroup or "", match[0]
        if kind == "string":
            tokens.append(Token(kind, _unescaped(piece[1:-1]), line))
        elif kind != "space":
            tokens.append(Token(kind, piece, line))
        line += piece.count("\n")
        at = match.end()
    return [*tokens, Token("end", "", line)]


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)


class _TextParser:
    def __init__(self, tokens: Sequence[Token], where: str) -> None:
        self._tokens = tokens
        self._where = where
        self._at = 0

    def fields_until(self, end: str, where: str, depth: int) -> Message:
        """Parse fields until the end mark `end`; "" marks the end of the file."""
        if depth > DEEPEST:
            raise self._trouble(f"messages are nested more than {DEEPEST} deep")
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
            raise self._trouble(f"expected a {kind}, found {token.text[:40]!r}")
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
        values: list[str | Message] = []
        while not self._is_mark("]"):
            values.append(self._value(where, depth, True))
            if self._is_mark(","):
                self._at += 1
        self._at += 1
        return values

    def _value(self, where: str, depth: int, has_colon: bool) -> str | Message:
        if self._is_mark("{<"):
            closing = CLOSING[self._taken("mark").text]
            return self.fields_until(closing, where, depth + 1)
        if not has_colon:
            raise self._trouble(f"expected ':' or '{{', found {self._next.text[:40]!r}")
        if self._next.kind != "string":
            return self._taken("word").text
        text = ""
        while self._next.kind == "string":
            text += self._taken("string").text
        return text

    def _trouble(self, what: str) -> UsageError:
        return UsageError(f"{self._where}:{self._next.line}: {what}")
