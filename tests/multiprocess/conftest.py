"""Starting ranks by hand: what each printed, how it ended, and no rank left behind."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from slipstream.cluster.agent import find_free_port_pair

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
    """The ranks of a job, and what a further one would need."""

    ranks: list[Rank]
    port: int
    key: str

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
        job = Job(ranks=[], port=find_free_port_pair(), key=secrets.token_hex(16))
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
                "SLIPSTREAM_JOB_KEY": job.key,
                "PYTHONUNBUFFERED": "1",
                "OMP_NUM_THREADS": "1",
            }
            chosen = {**described, **(environ or {}), **((of_rank or {}).get(rank, {}))}
            out = tmp_path / f"job{len(jobs)}-rank{rank}.out"
            with out.open("w") as file:
                process = subprocess.Popen(
                    [*prefix, sys.executable, str(RANKS / program), *arguments],
                    env={**os.environ, **chosen},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    text=True,
                    cwd=tmp_path,
                    start_new_session=True,
                )
            job.ranks.append(Rank(process=process, out=out))
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
