"""Where a run is on its hosts: a file on the client, so that every client knows the same."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from slipstream.cluster.control.plan import RunPlan

FILE_NAME = "layout.json"


@dataclass(slots=True)
class RunLayout:
    """Where a run is on its hosts.

    Attributes:
        home: Absolute path of the folder for runs and environments, the same on every host.
        python: Path of Python on every host.
        hosts: Names of the hosts in the run, in the order of their ranks.
        spares: Names of further hosts.
        head: Name of the host with the head.
        head_addresses: Addresses of this host.
        head_port: Port of the head.
    """

    home: str = ""
    python: str = ""
    hosts: list[str] = field(default_factory=list[str])
    spares: list[str] = field(default_factory=list[str])
    head: str = ""
    head_addresses: list[str] = field(default_factory=list[str])
    head_port: int = 0


def read_layout(plan: RunPlan) -> RunLayout:
    """Return where a run is on its hosts; an empty layout before its preparation."""
    path = plan.folder / FILE_NAME
    if not path.exists():
        return RunLayout()
    fields: dict[str, Any] = json.loads(path.read_text())
    return RunLayout(**fields)


def write_layout(plan: RunPlan, layout: RunLayout) -> None:
    """Keep where a run is on its hosts, in one step."""
    plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = plan.folder / FILE_NAME
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(layout), indent=1))
    temporary.replace(path)
