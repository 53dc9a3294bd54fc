"""A client dies before and after every call to a cloud; nothing is left behind.

One call of 16 is tried with each commit; `-m slow` or `make test-all` tries all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from moto_server import SERVER
from provider_sites import aliyun_site, aws_site

PROGRAM = Path(__file__).parent / "programs" / "provider_kills.py"
SHARES = 16
LIMIT_SECONDS = 280.0

pytestmark = pytest.mark.multiprocess

CLOUDS = [
    pytest.param(
        "aws",
        marks=[
            pytest.mark.slow("clients of AWS that are killed"),
            pytest.mark.skipif(not SERVER.exists(), reason="`make setup` installs moto's server"),
        ],
    ),
    pytest.param("aliyun", marks=pytest.mark.slow("clients of Alibaba Cloud that are killed")),
]


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("phase", ["up", "down"])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_killed_client_leaves_nothing_behind(cloud: str, phase: str, share: int) -> None:
    with aws_site() if cloud == "aws" else aliyun_site() as site:
        done = subprocess.run(
            [sys.executable, PROGRAM, cloud, phase, f"{share}/{SHARES}"],
            env={**os.environ, **site.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
    assert done.returncode == 0, done.stdout
    assert "nothing left behind" in done.stdout
