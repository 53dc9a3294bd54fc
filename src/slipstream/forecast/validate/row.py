"""A row of a table of published measurements, as text; and what is said of one that is not read."""

from __future__ import annotations

import re
from dataclasses import dataclass


class UnreadableError(Exception):
    """A row cannot be forecast; the message says what was met, and what can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row as it stands; the fields are the columns, but for `line`.

    Args:
        line: of the file, the header's being 1.
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
        """What names the model and the software, in lower case."""
        return f"{self.model} {self.framework}".lower()

    def numbers(self) -> dict[str, str]:
        """Returns what the model says as KEY=VALUE, keys in lower case."""
        found = re.findall(r"([A-Za-z_]\w*)=([\w.]+)", self.model)
        return {key.lower(): value for key, value in found}


def whole(text: str, name: str) -> int:
    """Returns a whole number, at least 1, that may have commas.

    Args:
        text: as it is in the table.
        name: of the column.

    Raises:
        UnreadableError: it is none.
    """
    digits = text.strip().replace(",", "")
    if not digits.isdecimal() or not int(digits):
        raise UnreadableError(f"{name} is {text!r}; a whole number, at least 1, can be read")
    return int(digits)
