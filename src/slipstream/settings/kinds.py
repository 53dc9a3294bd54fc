"""The kinds of environment variables: parsers of their text, and the words for allowed values."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from slipstream.errors import ConfigError

MIN_KEY_CHARACTERS = 16

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class InterfaceFilter:
    """The network interfaces that may be used, in NCCL's syntax.

    Args:
        names: Prefixes of interface names, or complete names if `exact` is true.
        exact: Whether the names are complete names, written with a leading `=` (default False).
        exclude: Whether the named interfaces are forbidden, written with a leading `^`. By default,
            only the named interfaces are allowed.
    """

    names: tuple[str, ...]
    exact: bool = False
    exclude: bool = False

    def allows(self, interface: str) -> bool:
        """Return whether the interface of this name may be used."""
        matched = interface in self.names if self.exact else interface.startswith(self.names)
        return matched != self.exclude


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind(Generic[T]):
    """A kind of variable, with a set of allowed texts.

    Args:
        parse: Function that returns the value for a text, or raises ValueError for a text that is
            not allowed.
        allowed: Description of the allowed texts, for messages and the documentation.
        secret: Whether values must never appear in messages (default False).
    """

    parse: Callable[[str], T]
    allowed: str
    secret: bool = False

    def read(self, name: str, text: str) -> T:
        """Return the value of the variable `name`.

        Raises:
            ConfigError: the text is not allowed; the message names the variable, the value and the
                allowed values.
        """
        try:
            return self.parse(text)
        except ValueError:
            received = f"a value of {len(text)} characters" if self.secret else repr(text)
            raise ConfigError(f"{name} is {received}; allowed: {self.allowed}") from None


def integer(low: int, high: int) -> Kind[int]:
    """Return the kind of variable that allows whole numbers from `low` to `high`."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return Kind(parse=parse, allowed=f"a whole number from {low} to {high}")


def seconds(low: float, high: float) -> Kind[float]:
    """Return the kind of variable that allows durations from `low` to `high` seconds."""

    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return Kind(parse=parse, allowed=f"a number from {low} to {high}")


def _parse_flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def integers(low: int, high: int) -> Kind[tuple[int, ...]]:
    """Return the kind of variable that allows lists of whole numbers from `low` to `high`."""

    def parse(text: str) -> tuple[int, ...]:
        values = tuple(int(number) for number in text.split(","))
        if not all(low <= value <= high for value in values):
            raise ValueError
        return values

    return Kind(
        parse=parse, allowed=f"whole numbers from {low} to {high}, separated by commas (`2,4`)"
    )


def choice(*values: str) -> Kind[str]:
    """Return the kind of variable that allows only the given texts."""

    def parse(text: str) -> str:
        if text not in values:
            raise ValueError
        return text

    return Kind(parse=parse, allowed="one of " + ", ".join(values))


def _parse_text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


def _parse_key(text: str) -> bytes:
    if len(text.strip()) < MIN_KEY_CHARACTERS:
        raise ValueError
    return text.strip().encode()


def _parse_interfaces(text: str) -> InterfaceFilter:
    match = re.fullmatch(r"\s*(\^?)(=?)([^\^=]+)", text)
    names = tuple(name.strip() for name in match[3].split(",") if name.strip()) if match else ()
    if match is None or not names:
        raise ValueError
    return InterfaceFilter(names=names, exact=bool(match[2]), exclude=bool(match[1]))


def _parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    return tuple(_parse_address(entry.strip()) for entry in text.split(","))


def _parse_address(entry: str) -> tuple[str, int]:
    host, colon, port = entry.rpartition(":")
    name = host.removeprefix("[").removesuffix("]")
    if not name or not colon or (":" in name) != (host == f"[{name}]"):
        raise ValueError
    return name, int(PORT.parse(port))


PORT = integer(1, 65535)
FLAG = Kind(parse=_parse_flag, allowed="0 or 1")
TEXT = Kind(parse=_parse_text, allowed="any text that is not blank")
PATH = Kind(parse=lambda text: Path(_parse_text(text)), allowed="a path")
KEY = Kind(parse=_parse_key, allowed=f"at least {MIN_KEY_CHARACTERS} characters", secret=True)
ADDRESSES = Kind(
    parse=_parse_addresses,
    allowed="addresses with ports, separated by commas (`a:20000,[fd00::1]:20002`)",
)
INTERFACES = Kind(
    parse=_parse_interfaces,
    allowed="prefixes of names, separated by commas; a leading `^` excludes, a leading `=` means"
    " whole names (`eth,ib`, `^docker,lo`, `=eth0`)",
)
