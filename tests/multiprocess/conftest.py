"""Starting ranks by hand: what each printed, how it ended, and no rank left behind."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slipstream.cluster.launch.ports import find_free_port_pair

RANKS = Path(__file__).parent / "ranks"
LIMIT_SECONDS = 120.0  # far more than anything here takes, on a machine that does other things too


@dataclass(kw_only=True)
class Rank:
    """A process that is one rank of a job."""

    process: "subprocess.Popen[str]"
    out: Path

    @property
    def output(self) -> str:
        return self.out.read_text()

    def wait_for(self, text: str) -> None:
        """Wait until it has written the text."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while text not in self.output:
            assert self.process.poll() is None, f"no {text!r} in:\n{self.output}"
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.output}"
            time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self) -> str:
        """Wait for its end, which must be a good one; return its output."""
        try:
            code = self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"still running after {LIMIT_SECONDS} s:\n{self.output}")
        assert code == 0, self.output
        return self.output


@dataclass(kw_only=True)
class Job:
    """The ranks of a job, and what a further process needs."""

    program: Path
    arguments: tuple[str, ...]
    folder: Path
    port: int
    key: str
    ranks: list[Rank] = field(default_factory=list[Rank])

    def add(self, environ: Mapping[str, str], prefix: tuple[str, ...] = ()) -> Rank:
        """Start a process with the job's key."""
        described = {
            "SLIPSTREAM_JOB_KEY": self.key,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
        }
        out = self.folder / f"{self.port}-{len(self.ranks)}.out"
        with out.open("w") as file:
            process = subprocess.Popen(
                [*prefix, sys.executable, str(self.program), *self.arguments],
                env={**os.environ, **described, **environ},
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=self.folder,
                start_new_session=True,
            )
        self.ranks.append(Rank(process=process, out=out))
        return self.ranks[-1]

    def finish(self, *but: int) -> list[str]:
        """Wait for the good end of all ranks but some; return their outputs."""
        return [rank.finish() for number, rank in enumerate(self.ranks) if number not in but]


Start = Callable[..., Job]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ranks of one program; whatever is left at the end is killed.

    Args of the function: num_ranks, program (file in ranks/), arguments; `environ` for all,
    `of_rank` for one rank; `absent` ranks are not started; `prefix` goes before the
    command.
    """
    jobs: list[Job] = []

    def run(
        num_ranks: int,
        program: str,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        of_rank: Mapping[int, Mapping[str, str]] | None = None,
        absent: tuple[int, ...] = (),
        prefix: tuple[str, ...] = (),
    ) -> Job:
        job = Job(
            program=RANKS / program,
            arguments=arguments,
            folder=tmp_path,
            port=find_free_port_pair(),
            key=secrets.token_hex(16),
        )
        jobs.append(job)
        for rank in range(num_ranks):
            if rank in absent:
                continue
            described = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(num_ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(job.port),
            }
            job.add({**described, **(environ or {}), **((of_rank or {}).get(rank, {}))}, prefix)
        return job

    yield run
    for job in jobs:
        for rank in job.ranks:
            # Its forked children are in its session's process group.
            try:
                os.killpg(rank.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            rank.process.wait()
