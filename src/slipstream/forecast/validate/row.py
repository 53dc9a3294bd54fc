"""A row of a table of published measurements as text, and the error for unreadable rows."""

from __future__ import annotations

import re
from dataclasses import dataclass


class UnreadableError(Exception):
    """A row cannot be forecast; the message says which value it has, and which can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A published measurement as text; every field except `line` is a column of the table.

    Args:
        line: Line number in the file; the header is line 1.
    """

    line: int
    source: str
    model: str
    gpu: str
    gpus_per_node: str
    network_gbps: str
    framework: str
    batch_per_gpu: str
    num_gpus: str
    images_per_sec_or_speedup: str
    unit: str
    address: str

    @property
    def words(self) -> str:
        """Texts of the columns `model` and `framework`, joined by a blank, in lower case."""
        return f"{self.model} {self.framework}".lower()

    def numbers(self) -> dict[str, str]:
        """Return the KEY=VALUE pairs in the text of the column `model`, with keys in lower case."""
        pairs = re.findall(r"([A-Za-z_]\w*)=([\w.]+)", self.model)
        return {key.lower(): value for key, value in pairs}


def whole(text: str, name: str) -> int:
    """Return the whole number in a text, such as 1024 for "1,024"; it must be at least 1.

    Args:
        text: Text from a cell of the table.
        name: Name of the number in the error message, such as the column's name.

    Raises:
        UnreadableError: The text is not a whole number of at least 1.
    """
    digits = text.strip().replace(",", "")
    if not digits.isdecimal() or not int(digits):
        raise UnreadableError(f"{name} is {text!r}; a whole number of at least 1 can be read")
    return int(digits)
