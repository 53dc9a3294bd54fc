"""What every engine of the cluster does alike. Each engine's tests run it on a site of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from host import Host, Program
from host_boot import HOME
from waiting import wait_until

PYTHON = Path(sys.executable)
SLIPSTREAM = PYTHON.with_name("slipstream")
SIGKILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
RUN_SECONDS = 120.0
NUM_START_CALLS = 9
NUM_CLIENTS = 2  # that run at the same time, each with another run
NO_RESTART = ("--set", "retry.max_restarts=0")
PROGRAM = "acts.py"
# Prints lines for so many steps, and ends with the exit code of the attempt.
ACTS = """\
import os, sys, time
rank, attempt = os.environ["RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print(f"rank {rank} attempt {attempt}", flush=True)
for step in range(int(sys.argv[1])):
    time.sleep(0.1)
    print(f"rank {rank} step {step}", flush=True)
codes = [int(code) for code in sys.argv[2].split(",")]
sys.exit(codes[min(attempt, len(codes) - 1)])
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """An engine that is ready, and the desk at which its user sits.

    Attributes:
        desk: Host of the client.
        hosts: Hosts on which jobs run.
        fields: Fields of a job that choose the engine.
        broken: Fields with which the engine cannot be reached, or refuses.
        refusal: Words of the message then.
        environ: Variables of the client.
        num_kills: Number of outside calls at which clients are killed at most.
    """

    desk: Host
    hosts: Sequence[Host]
    fields: Mapping[str, Any]
    broken: Mapping[str, Any]
    refusal: str
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    num_kills: int = 100

    def write_job(self, name: str, command: str | Sequence[str], **fields: Any) -> str:
        """Write a job file with the program of the contract; return its path."""
        self.desk.write(f"{HOME}/{name}/{PROGRAM}", ACTS)
        retry = {"backoff": [0.1, 0.1], "max_restarts": 1}
        software = {"python": str(PYTHON), "environment": "existing"}
        job = {"command": command, "processes": 1, "software": software, "retry": retry}
        self.desk.write(f"{HOME}/{name}/{name}.yaml", json.dumps({**job, **self.fields, **fields}))
        return f"{name}/{name}.yaml"

    def slipstream(self, *arguments: str, stop: str = "") -> "subprocess.CompletedProcess[str]":
        """Call `slipstream` at the desk; it kills itself at the outside call that `stop` names."""
        environ = {**self.environ, **({"SLIPSTREAM_STOP_AT": stop} if stop else {})}
        return self.desk.run(SLIPSTREAM, *arguments, environ=environ, seconds=RUN_SECONDS)

    def start(self, *arguments: str, log: Path) -> Program:
        """Start `slipstream` at the desk."""
        return self.desk.start(SLIPSTREAM, *arguments, environ=self.environ, log=log)

    def status(self, name: str) -> dict[str, Any]:
        """Return what the records have of a run."""
        return json.loads(self.slipstream("cluster", "status", name, "--json").stdout)

    def state(self, name: str) -> str:
        """Return the state of a run."""
        return self.status(name)["state"]

    def run_id(self, name: str) -> str:
        """Return the name of a run with its number."""
        return f"{name}-{self.status(name)['number']}"

    def left_behind(self) -> list[str]:
        """Return the processes of runs that are on the hosts."""
        lines = [line for host in self.hosts for line in host.processes().values()]
        return [line for line in lines if PROGRAM in line or "slipstream.cluster" in line]

    def assert_clean(self) -> None:
        """Wait until no process of a run is left."""
        wait_until(lambda: not self.left_behind())


class EngineContract:
    """What every engine does; each engine's class is in a module with a fixture `site`.

    The engines share the kinds of slow tests: a commit tries each behaviour with one engine.
    """

    @pytest.mark.slow("exit code of an engine")
    def test_the_exit_code_of_the_job_is_passed_on(self, site: Site) -> None:
        job = site.write_job("code", f"{PROGRAM} 3 0")
        assert site.slipstream("run", job).returncode == 0
        done = site.slipstream("run", job, "--set", f"command={PROGRAM} 3 7,0", *NO_RESTART)
        assert done.returncode == 7, done.stderr
        assert site.state("code") == "failed"
        logs = site.slipstream("cluster", "logs", "code")
        assert "rank 0 attempt 0\n" in logs.stdout
        site.assert_clean()

    @pytest.mark.slow("new start by an engine")
    def test_a_job_that_fails_once_starts_again(self, site: Site) -> None:
        done = site.slipstream("run", site.write_job("again", f"{PROGRAM} 3 9,0"))
        assert done.returncode == 0, done.stderr
        assert "starts again" in done.stderr
        assert "rank 0 attempt 1\n" in done.stdout
        assert site.state("again") == "succeeded"

    @pytest.mark.slow("wrong program with an engine")
    def test_a_wrong_program_is_named(self, site: Site) -> None:
        done = site.slipstream("run", site.write_job("wrong", "missing.py"))
        assert done.returncode == 2, done.stderr
        assert "missing.py" in done.stderr
        assert "exit code 2 is permanent" in done.stderr

    @pytest.mark.slow("Ctrl-C with an engine")
    def test_ctrl_c_ends_the_job(self, site: Site, tmp_path: Path) -> None:
        log = tmp_path / "log"
        client = site.start("run", site.write_job("ended", f"{PROGRAM} 1000 0"), log=log)
        wait_until(lambda: "step 3\n" in log.read_text())
        os.kill(client.pid, signal.SIGINT)
        assert client.process.wait(RUN_SECONDS) != 0
        assert site.state("ended") == "cancelled", log.read_text()
        site.assert_clean()

    @pytest.mark.slow("second client of an engine")
    def test_a_second_client_follows_the_same_run(self, site: Site) -> None:
        job = site.write_job("twice", f"{PROGRAM} 20 0")
        assert site.slipstream("run", job, "--detach").returncode == 0
        done = site.slipstream("run", job)
        assert done.returncode == 0, done.stderr
        assert "the run twice goes on" in done.stderr
        assert done.stdout.count("rank 0 attempt 0\n") == 1
        assert done.stdout.count("rank 0 step 19\n") == 1

    @pytest.mark.slow("end of a run from elsewhere")
    def test_a_run_that_goes_on_is_ended_from_elsewhere(self, site: Site) -> None:
        job = site.write_job("down", f"{PROGRAM} 1000 0")
        assert site.slipstream("run", job, "--detach").returncode == 0
        down = site.slipstream("cluster", "down", "down")
        assert down.returncode == 0, down.stderr
        assert site.state("down") == "cancelled"
        site.assert_clean()

    @pytest.mark.slow("refusal by an engine")
    def test_an_engine_that_refuses_says_why(self, site: Site) -> None:
        done = site.slipstream("run", site.write_job("broken", f"{PROGRAM} 0 0", **site.broken))
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert site.refusal in done.stderr.splitlines()[-1]
        assert site.state("broken") == "failed"

    @pytest.mark.slow("kill of a client")
    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_a_client_may_be_killed_at_every_outside_call(self, site: Site, moment: str) -> None:
        assert site.slipstream("cluster", "ls").returncode == 0
        stops = (f"{moment}:{number}" for number in chosen_calls(site.num_kills))
        num_kills = 0
        with ThreadPoolExecutor(NUM_CLIENTS) as pool:
            while batch := list(islice(stops, NUM_CLIENTS)):
                were_killed = list(pool.map(lambda stop: kill_and_follow(site, stop), batch))
                num_kills += sum(were_killed)
                if not all(were_killed):
                    break
        assert num_kills >= 1
        site.assert_clean()


def chosen_calls(count: int) -> Iterator[int]:
    """Yield numbers of calls: all of the start, and a third of those that follow a running job."""
    yield from range(min(count, NUM_START_CALLS))
    yield from range(NUM_START_CALLS, count, 3)


def kill_and_follow(site: Site, stop: str) -> bool:
    """Kill a client before or after an outside call, and let another client end the run.

    Returns whether the first client made so many calls.
    """
    name = stop.replace(":", "-")
    job = site.write_job(name, f"{PROGRAM} 0 0", hosts=1)
    done = site.slipstream("run", job, stop=stop)
    if done.returncode == 0:
        return False
    assert done.returncode in SIGKILLED, done.stderr
    done = site.slipstream("run", job)
    assert done.returncode == 0, (name, done.stderr)
    logs = site.slipstream("cluster", "logs", name)
    assert logs.stdout.count("rank 0 attempt 0\n") == 1, (name, logs.stdout)
    assert site.state(name) == "succeeded"
    return True
