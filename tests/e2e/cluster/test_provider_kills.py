"""A client dies before and after every call to a cloud; nothing is left behind.

One call of 16 is tried with each commit; `make test-all` tries all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto_server import SERVER
from provider_sites import CloudSite, aliyun_site, aws_site

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


@pytest.fixture(scope="module", params=CLOUDS)
def site(request: pytest.FixtureRequest) -> Iterator[CloudSite]:
    with aws_site() if request.param == "aws" else aliyun_site() as site:
        yield site


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("phase", ["up", "down"])
def test_a_killed_client_leaves_nothing_behind(site: CloudSite, phase: str, share: int) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, site.name, phase, f"{share}/{SHARES}"],
        env={**os.environ, **site.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout
    assert "nothing left behind" in done.stdout
