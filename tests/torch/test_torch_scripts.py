"""Each feature of PyTorch that a user was promised, in a script that checks its own numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("name", sorted(path.name for path in SCRIPTS.glob("*.py")))
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
