"""Checkpoints in an object store, by the client s3fs from a server that speaks S3's protocol."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from slipstream.cluster.launch.ports import find_free_port_pair

ENVIRONMENT = Path(sys.prefix) / "s3"
SERVER = ENVIRONMENT / "bin" / "moto_server"
SHARDS = Path(__file__).parents[1] / "multiprocess" / "ranks" / "checkpoint_shards.py"
TRAINING = Path(__file__).parent / "training.py"
SLIPSTREAM = Path(sys.executable).with_name("slipstream")
LIMIT_SECONDS = 120.0

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.slow("checkpoints in an object store"),
    pytest.mark.skipif(not SERVER.exists(), reason="`make setup` installs the server"),
]


@pytest.fixture(scope="module")
def environ() -> Iterator[dict[str, str]]:
    """Serve a bucket named "bucket"; yield the variables of those who use it."""
    port = find_free_port_pair()
    url = f"http://127.0.0.1:{port}"
    (packages,) = ENVIRONMENT.glob("lib/python*/site-packages")
    with subprocess.Popen([SERVER, "-p", str(port)], stderr=subprocess.DEVNULL) as server:
        try:
            make_bucket(f"{url}/bucket")
            yield {
                **os.environ,
                "PYTHONPATH": str(packages),
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "anybody",
                "AWS_SECRET_ACCESS_KEY": "anything",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        finally:
            server.kill()


def make_bucket(url: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=LIMIT_SECONDS)
            return
        except urllib.error.URLError:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.1)


def slipstream(environ: Mapping[str, str], *arguments: str) -> str:
    """Run `slipstream`; return what it printed."""
    done = subprocess.run(
        [SLIPSTREAM, *arguments],
        env=dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_another_number_of_ranks_reads_sharded_tensors(environ: dict[str, str]) -> None:
    url = "s3://bucket/shards"
    slipstream(environ, "run", "-n", "4", str(SHARDS), "save", url)
    for num_ranks in ("1", "2"):
        slipstream(environ, "run", "-n", num_ranks, str(SHARDS), "restore", url)
    assert slipstream(environ, "checkpoints", url, "--verify").count("whole") == 2


def test_a_kill_during_an_upload_leaves_the_last_whole_checkpoint(environ: dict[str, str]) -> None:
    """The file is uploaded in parts, so the process dies between two of them."""
    command = [sys.executable, str(TRAINING), "s3://bucket/kills"]
    for _ in range(2):
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as training:
            assert training.stdout is not None
            steps = [line for line in iter(training.stdout.readline, "") if line.strip()]
            assert len(steps) == 2, steps
        assert training.returncode == -signal.SIGKILL
    looking = [*command, "--look"]
    done = subprocess.run(looking, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["restored", "2"]
    listed = json.loads(slipstream(environ, "checkpoints", command[-1], "--verify", "--json"))
    assert [(entry["step"], entry["whole"]) for entry in listed] == [(2, True), (1, True)]
