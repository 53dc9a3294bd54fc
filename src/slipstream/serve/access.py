"""Access to a server: API tokens and TLS."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.errors import ConfigError, reason_of
from slipstream.serve.refusals import Reason, RequestRefusedError

_MIN_CHARACTERS = 16  # smallest length of a token; chosen by hand


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that grant access.

    Args:
        allowed: Tokens, one of which a request must present; empty (the default) if a request needs
            no token.
    """

    allowed: tuple[bytes, ...] = ()

    def check(self, authorization: str) -> None:
        """Raise RequestRefusedError unless a header field presents one of the allowed tokens.

        Args:
            authorization: Value of the header field `authorization`; "" if the field is missing.
        """
        if not self.allowed:
            return
        kind, _, token = authorization.partition(" ")
        presented = token.strip().encode(errors="replace")
        # All tokens are compared, so that the duration of the check reveals nothing about them.
        fits = [hmac.compare_digest(presented, each) for each in self.allowed]
        if kind.lower() != "bearer" or not any(fits):
            raise RequestRefusedError(
                Reason.UNAUTHENTICATED, "a token is needed: Authorization: Bearer TOKEN"
            )


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate and key of a server.

    Args:
        certificate: PEM file of the certificate and its chain.
        key: PEM file of the private key.
    """

    certificate: Path
    key: Path


def read_tokens(path: Path) -> Tokens:
    """Read tokens from a file, one per line; lines that begin with # are comments.

    Raises ConfigError if the file cannot be read, has no token, or has a token with fewer than 16
    characters.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as tokens: {reason_of(error)}") from error
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise ConfigError(
            f"{path} has no token; write one per line, each of {_MIN_CHARACTERS} characters or more"
        )
    if min(map(len, found)) < _MIN_CHARACTERS:
        raise ConfigError(f"{path} has a token of fewer than {_MIN_CHARACTERS} characters")
    return Tokens(tuple(each.encode() for each in found))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def field_of(fields: Sequence[tuple[bytes, bytes]], name: bytes) -> str:
    """Return the value of a field in an ASGI header, or "" if the field is missing."""
    return next((value.decode("latin-1") for key, value in fields if key == name), "")
