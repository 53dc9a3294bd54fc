"""Each feature of PyTorch that a user was promised, in a script that checks its own numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
LONG = {
    "collectives.py": "collectives of PyTorch",
    "failures.py": "collectives of PyTorch",
    "overlap.py": "gradients beside the backward pass",
    "tuning.py": "gradients beside the backward pass",
}

pytestmark = pytest.mark.multiprocess


def parameters() -> list[Any]:
    """Return the scripts on two and four ranks; of each kind of long ones, one runs."""
    return [
        pytest.param(path.name, count, marks=mark(path.name, count))
        for path in sorted(SCRIPTS.glob("*.py"))
        for count in (2, 4)
    ]


def mark(name: str, count: int) -> Any:
    """Return the mark of a script on a number of ranks; an empty tuple if it always runs."""
    if name in LONG:
        return pytest.mark.slow(LONG[name])
    return pytest.mark.sweep if count == 4 else ()


@pytest.mark.parametrize(("name", "count"), parameters())
def test_script(run_script: Callable[[int, str], None], name: str, count: int) -> None:
    run_script(count, name)


@pytest.mark.slow("PyTorch under a launcher")
def test_script_under_torchrun() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ended = subprocess.run(
        [*command, "--nproc-per-node", "2", str(SCRIPTS / "ddp.py")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
