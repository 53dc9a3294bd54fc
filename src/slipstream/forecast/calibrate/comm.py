"""Timed all-reduces from the file that `slipstream bench comm --json` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from slipstream.errors import ConfigError, UsageError
from slipstream.forecast.calibrate.line import Sample

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
class Timed:
    """All-reduces of one contender.

    Args:
        contender: who did them.
        is_network: between hosts; else between ranks of one.
        samples: at least one.
    """

    contender: str
    is_network: bool
    samples: tuple[Sample, ...]


def read(path: Path) -> Timed:
    """Reads all-reduces of the first of `CONTENDERS` that is in a file.

    Args:
        path: of the file.

    Raises:
        ConfigError: it cannot be read.
        UsageError: it has no all-reduce, or several ranks on each of several hosts, whose links
            cannot be told apart.
    """
    try:
        return timed(json.loads(path.read_bytes()), str(path))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read as what slipstream bench comm --json writes: {error}"
        ) from error


def timed(content: Mapping[str, Any], name: str) -> Timed:
    """Returns all-reduces of the first of `CONTENDERS` that is there.

    Args:
        content: as `slipstream bench comm --json` has it.
        name: of where it is from, for errors.

    Raises:
        UsageError: as `read`.
        ValueError: it is something else.
    """
    file = _File.model_validate(content)
    lab = file.spec.lab
    if lab is not None and lab.hosts > 1 and lab.ranks_per_host > 1:
        raise UsageError(
            f"{name} has {lab.ranks_per_host} ranks on each of {lab.hosts} hosts; to measure the"
            " network, one rank on each host is needed"
        )
    ranks = file.spec.local if lab is None else lab.hosts * lab.ranks_per_host
    rows = [row for row in file.rows if row.collective == "allreduce"]
    for contender in CONTENDERS:
        own = [row for row in rows if row.contender == contender]
        if own:
            samples = tuple(Sample(ranks, row.size, row.median_seconds) for row in own)
            return Timed(contender, lab is not None and lab.hosts > 1, samples)
    raise UsageError(f"{name} has no allreduce of {', '.join(CONTENDERS)}: measure one of them")
