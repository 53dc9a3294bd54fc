"""Jobs for tests of `slipstream run job.yaml` at the desk of some hosts."""

import json
from pathlib import Path
from typing import Any

from host import Host

REPOSITORY = Path(__file__).parents[2]
PYTHON = REPOSITORY / ".venv/bin/python"
SLIPSTREAM = REPOSITORY / ".venv/bin/slipstream"
PROGRAMS = REPOSITORY / "tests/e2e/cluster/programs"
HOME = "/home/trainer"


def write_job(desk: Host, name: str, command: str, **fields: Any) -> None:
    """Write a job file and its programs on the desk."""
    for program in PROGRAMS.glob("*.py"):
        desk.write(f"{HOME}/{name}/{program.name}", program.read_text())
    job = {
        "command": command,
        "on": "ssh",
        "processes": 1,
        "software": {"python": str(PYTHON), "environment": "existing"},
        **fields,
    }
    desk.write(f"{HOME}/{name}/{name}.yaml", json.dumps(job))


def left_behind(host: Host) -> list[str]:
    """Return what still runs on a host, but for what belongs to ssh and tmux themselves."""
    kept = ("sshd", "tmux")
    return [line for line in host.processes().values() if not line.startswith(kept)]
