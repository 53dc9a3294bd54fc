"""RayExecutor on a real Ray of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.multiprocess

JOB = Path(__file__).parent / "ray_job.py"


@pytest.mark.slow("Horovod's launchers")
def test_ranks_are_actors_of_ray(tmp_path: Path) -> None:
    environ = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, str(JOB)],
        capture_output=True,
        text=True,
        timeout=240,
        env=environ,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-6000:]
    assert ended.stdout.endswith("done\n")


def test_without_ray_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['ray'] = None\n"
        "try:\n    import slipstream.horovod.ray\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'slipstream[ray]'" in ended.stdout
