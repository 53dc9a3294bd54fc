"""Real launches: the command line as a user types it, and what it leaves behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from waiting import LIMIT_SECONDS, wait_until

RANKS = Path(__file__).parent / "ranks"
COMMAND = str(Path(sys.executable).with_name("slipstream"))
Wait = Callable[[Callable[[], object]], None]


@dataclass(kw_only=True)
class Launch:
    """A running `slipstream run`; everything that it starts carries its token."""

    process: "subprocess.Popen[str]"
    token: str
    out: Path
    err: Path
    began_at: float = field(default_factory=time.monotonic)

    def finish(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(LIMIT_SECONDS)

    @property
    def output(self) -> str:
        return self.out.read_text()

    @property
    def errors(self) -> str:
        return self.err.read_text()

    def wait_for(self, *texts: str) -> None:
        """Wait until all the texts have been written, as output or as errors."""

        def are_written() -> bool:
            written = self.output + self.errors
            missing = [text for text in texts if text not in written]
            assert not missing or self.process.poll() is None, f"no {missing} in {written}"
            return not missing

        wait_until(are_written)

    def descendants(self) -> list[int]:
        """Return the processes with the token, other than the launcher; zombies have none."""
        mark = f"LAUNCH_TOKEN={self.token}".encode()
        return [pid for pid in _pids() if pid != self.process.pid and mark in _environment(pid)]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


Run = Callable[..., Launch]


@pytest.fixture
def ranks() -> Path:
    """Return the folder of the programs that the launches here run."""
    return RANKS


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start `slipstream run` with these arguments; whatever is left at the end is killed."""
    started: list[Launch] = []

    def start(
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        before: tuple[str, ...] = (),
        cwd: Path = RANKS,
    ) -> Launch:
        token = uuid.uuid4().hex
        flight = {"SLIPSTREAM_FLIGHT_DIR": str(tmp_path / "flight")}
        out, err = tmp_path / f"{token}.out", tmp_path / f"{token}.err"
        with out.open("w") as out_file, err.open("w") as err_file:
            process = subprocess.Popen(
                [*before, COMMAND, "run", *map(str, arguments)],
                env={**os.environ, "LAUNCH_TOKEN": token, **flight, **(environ or {})},
                stdout=out_file,
                stderr=err_file,
                text=True,
                cwd=cwd,
                start_new_session=True,
            )
        started.append(Launch(process=process, token=token, out=out, err=err))
        return started[-1]

    yield start
    for launch in started:
        if launch.process.poll() is None:
            launch.process.kill()
            launch.process.wait()
        for pid in launch.descendants():
            with contextlib.suppress(ProcessLookupError):  # it may end by itself meanwhile
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(name="wait_until", scope="session")
def wait_until_fixture() -> Wait:
    """Wait for a condition, with a deadline."""
    return wait_until
