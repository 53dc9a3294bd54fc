"""Programs of several ranks that use slipstream's backend of torch.distributed on one GPU.

Slipstream must be importable by this Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent
LIMIT_SECONDS = 90.0


class RanksError(Exception):
    """The ranks of a program have failed, or printed nothing."""


def ranks(folder: Path, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Run a program under torchrun, and return the JSON objects that it prints.

    Args:
        folder: Folder for built files; not used.
        arguments: Name of a script in tools/gpu_check/ranks, number of ranks, and the arguments of
            the script.

    Raises:
        RanksError: The program printed no JSON object.
    """
    script, count, *rest = arguments
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", count]
    done = subprocess.run(
        [*command, str(SCRIPTS / f"{script}.py"), *rest],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not rows or (done.returncode != 0 and script != "killed"):
        raise RanksError(f"exit status {done.returncode}: {done.stderr[-1500:]}")
    for row in rows:
        yield {"script": script, **row}
