"""The job key is nowhere where others can read it: command lines, output, flight records, files."""

from __future__ import annotations

import base64
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Network, open_network

pytestmark = pytest.mark.multiprocess

Run = Callable[..., Any]  # conftest.Launch is what it returns
Wait = Callable[[Callable[[], object]], None]
KEY = "5ec2e75ec2e75ec2e75ec2e75ec2e7a1"


def forms(key: str) -> list[bytes]:
    """Return the texts in which the key could be written."""
    plain = key.encode()
    raw = bytes.fromhex(key)
    return [
        plain,
        plain.upper(),
        plain.hex().encode(),
        base64.b64encode(plain).rstrip(b"="),
        base64.b64encode(raw).rstrip(b"="),
        raw,
        repr(raw)[2:-1].encode(),
    ]


class Watch:
    """A thread that looks at the command lines of all processes of the machine."""

    def __init__(self) -> None:
        self.seen: dict[bytes, None] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.01):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    self.seen[path.read_bytes()] = None


def job_key_of(pids: list[int]) -> str:
    """Return the key that the launcher has given to its processes."""
    name = b"SLIPSTREAM_JOB_KEY="
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(name):
                    return entry.removeprefix(name).decode()
    return ""


def assert_secret(key: str, watch: Watch, folder: Path) -> None:
    """Check that no form of the key is in a command line, or in a file of the folder."""
    assert any(b"secretive.py" in line or b"elastic_train.py" in line for line in watch.seen)
    files = [path for path in folder.rglob("*") if path.is_file()]
    texts = {str(path): path.read_bytes() for path in files}
    texts |= {f"command line {line!r}": line for line in watch.seen}
    found = [name for name, text in texts.items() if any(form in text for form in forms(key))]
    assert not found


def private(tmp_path: Path, **more: str) -> dict[str, str]:
    """Return the variables by which all files of a job lie in a folder."""
    for name in ("home", "tmp", "cache"):
        (tmp_path / name).mkdir()
    return {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    } | more


@pytest.mark.parametrize("is_given", [True, False], ids=["given", "drawn"])
def test_a_job_that_fails_keeps_its_key_secret(run: Run, tmp_path: Path, is_given: bool) -> None:
    stop = tmp_path / "stop"
    given = {"SLIPSTREAM_JOB_KEY": KEY} if is_given else {}
    environ = private(tmp_path, **given)
    with Watch() as watch:
        launch = run("-n", "2", "secretive.py", str(stop), environ=environ)
        launch.wait_for("rank 0 waits", "rank 1 waits")
        key = job_key_of(launch.descendants())
        stop.touch()
        assert launch.finish() != 0
    assert len(key) >= 32
    assert key == KEY or not is_given
    assert any((tmp_path / "flight").iterdir())  # records are among the files
    assert_secret(key, watch, tmp_path)


@pytest.mark.slow("secret key of a job")
def test_an_elastic_job_keeps_its_key_secret(run: Run, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    environ = private(tmp_path)
    with Watch() as watch:
        launch = run("-n", "2", "--min", "1", "elastic_train.py", str(stop), environ=environ)
        launch.wait_for("rank 0 of 2", "rank 1 of 2")
        pids = launch.descendants()
        key = job_key_of(pids)
        words = next(line for line in launch.output.splitlines() if "rank 1 of 2" in line).split()
        os.kill(int(words[-1]), 9)
        launch.wait_for("rank 0 of 1")
        time.sleep(0.5)
        stop.touch()
        launch.finish()
    assert len(key) >= 32
    assert_secret(key, watch, tmp_path)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, wait_until: Wait) -> Iterator[Network]:
    """Yield two hosts with sshd and a desk, which a switch connects."""
    with open_network(tmp_path_factory.mktemp("ssh"), wait_until) as network:
        yield network


@pytest.mark.slow("secret key of a job")
@pytest.mark.netns
@pytest.mark.launcher("sshd", "ssh", "ssh-keygen")
def test_a_job_over_ssh_keeps_its_key_secret(network: Network, run: Run, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    environ = private(tmp_path, SLIPSTREAM_JOB_KEY=KEY)
    with Watch() as watch:
        launch = network.run(run, "alpha,beta", "secretive.py", str(stop), environ=environ)
        launch.wait_for("rank 0 waits", "rank 1 waits")
        assert job_key_of(launch.descendants()) == KEY
        stop.touch()
        assert launch.finish() != 0
    assert_secret(KEY, watch, tmp_path)
