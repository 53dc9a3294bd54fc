"""Who may ask: tokens of an API, and TLS."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.errors import ConfigError
from slipstream.serve.refusals import Reason, RequestRefusedError

_LEAST = 16  # characters of a token


@dataclass(frozen=True, slots=True)
class Tokens:
    """Those that let a request in.

    Args:
        allowed: any of them; empty: everybody may ask.
    """

    allowed: tuple[bytes, ...] = ()

    def check(self, authorization: str) -> None:
        """Raises RequestRefusedError for a header field that has none of the tokens.

        Args:
            authorization: the field of that name; "": there is none.
        """
        if not self.allowed:
            return
        kind, _, token = authorization.partition(" ")
        given = token.strip().encode(errors="replace")
        # All are compared, so that time tells nothing.
        fits = [hmac.compare_digest(given, each) for each in self.allowed]
        if kind.lower() != "bearer" or not any(fits):
            raise RequestRefusedError(
                Reason.UNAUTHENTICATED, "a token is needed: Authorization: Bearer TOKEN"
            )


@dataclass(frozen=True, slots=True)
class Tls:
    """What a server shows that it is the one.

    Args:
        certificate: file in PEM, with its chain.
        key: file in PEM.
    """

    certificate: Path
    key: Path


def read_tokens(path: Path) -> Tokens:
    """Reads tokens, one a line; lines that begin with # are not.

    Raises ConfigError for a file that cannot be read, has none, or one of less than 16 characters.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as tokens: {error}") from error
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise ConfigError(f"{path} has no token; one a line, of {_LEAST} characters or more")
    if min(map(len, found)) < _LEAST:
        raise ConfigError(f"{path} has a token of less than {_LEAST} characters")
    return Tokens(tuple(each.encode() for each in found))


def is_loopback(host: str) -> bool:
    """Says whether an address is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def field_of(fields: Sequence[tuple[bytes, bytes]], name: bytes) -> str:
    """Returns a field of an ASGI header; "": it is not there."""
    return next((value.decode("latin-1") for key, value in fields if key == name), "")
