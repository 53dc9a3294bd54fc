"""Parsing of binary model files that may be damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from slipstream.errors import UsageError, reason_of

Content = TypeVar("Content")


class DamagedFileError(ValueError):
    """Error for a file whose bytes do not follow its format."""


def parse_file(path: Path, kind: str, parse: Callable[[bytes], Content]) -> Content:
    """Read a file and parse its bytes.

    Args:
        path: File to read.
        kind: Name of the file's kind in error messages, such as "caffemodel".
        parse: Function that parses the bytes; it may raise DamagedFileError or struct.error.

    Raises:
        UsageError: If the file cannot be read, is damaged, or is of another kind.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {reason_of(error)}") from error
    try:
        return parse(data)
    except (DamagedFileError, struct.error) as error:
        raise UsageError(f"{path}: this is no {kind}, or it is damaged: {error}") from error
