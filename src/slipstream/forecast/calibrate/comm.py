"""Timed all-reduces from the file that `slipstream bench comm -o` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from slipstream.errors import ConfigError, UsageError, reason_of
from slipstream.forecast.calibrate.line import TimedAllReduce

CONTENDERS = ("nccl", "slipstream", "gloo")

_Positive = Annotated[float, Field(gt=0)]


class _Lab(BaseModel):
    hosts: Annotated[int, Field(ge=1)]
    ranks_per_host: Annotated[int, Field(ge=1)]


class _Spec(BaseModel):
    lab: _Lab | None
    local: int


class _Row(BaseModel):
    collective: str
    contender: str
    size: _Positive
    median_seconds: _Positive


class _File(BaseModel):
    spec: _Spec
    rows: list[_Row]


@dataclass(frozen=True, slots=True)
class AllReduceTimes:
    """Timed all-reduces of one communication library.

    Args:
        contender: Name of the library, one of `CONTENDERS`.
        is_network: Whether the ranks were on different hosts; otherwise they were on one host.
        samples: Timed all-reduces, at least one.
    """

    contender: str
    is_network: bool
    samples: tuple[TimedAllReduce, ...]


def read(path: Path) -> AllReduceTimes:
    """Read timed all-reduces from a file that `slipstream bench comm -o` wrote.

    If the file has all-reduces of several libraries, those of the first library in the order of
    `CONTENDERS` are returned.

    Args:
        path: Location of the file.

    Raises:
        ConfigError: The file cannot be read.
        UsageError: The file has no all-reduce of a library in `CONTENDERS`, or several ranks ran on
            each of several hosts. With several ranks on each of several hosts, a time depends both
            on links within hosts and on links between hosts.
    """
    try:
        return timed(json.loads(path.read_bytes()), str(path))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read as output of slipstream bench comm -o: {reason_of(error)}"
        ) from error


def timed(content: Mapping[str, Any], name: str) -> AllReduceTimes:
    """Return the timed all-reduces of the first library in `CONTENDERS` that was measured.

    Args:
        content: Parsed JSON that `slipstream bench comm -o` wrote.
        name: Origin of the content, for error messages.

    Raises:
        UsageError: The content has one of the problems for which `read` raises UsageError.
        ValueError: The content does not have the schema of `slipstream bench comm`.
    """
    file = _File.model_validate(content)
    lab = file.spec.lab
    if lab is not None and lab.hosts > 1 and lab.ranks_per_host > 1:
        raise UsageError(
            f"{name} has {lab.ranks_per_host} ranks on each of {lab.hosts} hosts; measure the"
            " network with one rank on each host"
        )
    ranks = file.spec.local if lab is None else lab.hosts * lab.ranks_per_host
    rows = [row for row in file.rows if row.collective == "allreduce"]
    for contender in CONTENDERS:
        rows_of_contender = [row for row in rows if row.contender == contender]
        if rows_of_contender:
            samples = tuple(
                TimedAllReduce(ranks, row.size, row.median_seconds) for row in rows_of_contender
            )
            return AllReduceTimes(contender, lab is not None and lab.hosts > 1, samples)
    raise UsageError(
        f"{name} has no allreduce of {', '.join(CONTENDERS)}; measure one of these contenders"
    )
