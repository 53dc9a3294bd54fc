"""The daemon and the client of a run are killed before and after each of their outside calls."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from slipstream.cluster.queue import JobQueue, JobSubmission, MachinePool, QueueMachine, QueueStore
from slipstream.cluster.queue.folders import output_path, starts_folder
from slipstream.cluster.queue.shim import process_mark, processes_with
from slipstream.cluster.records import RunLog, Store
from slipstream.settings import queue_token_variable

pytestmark = pytest.mark.multiprocess

PROGRAM = """\
import sys, time
def log(word):
    with open("log", "a") as file:
        file.write(word + "\\n")
log("start")
time.sleep(0.3)
log("end")
sys.exit(int(sys.argv[1]))
"""


@contextlib.contextmanager
def daemon(home: Path, stop_at: str = "") -> Iterator["subprocess.Popen[str]"]:
    """Run a daemon; it and the clients that it starts kill themselves at an outside call."""
    environ = {**os.environ, "SLIPSTREAM_HOME": str(home)}
    if stop_at:
        environ["SLIPSTREAM_STOP_AT"] = stop_at
    command = [sys.executable, "-m", "slipstream.cli", "queue", "serve"]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def clients_end(home: Path) -> bool:
    """Return whether no client of a run is left."""
    folder = starts_folder(home)
    tokens = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return not any(processes_with(f"{queue_token_variable()}={token}") for token in tokens)


def submit(store: QueueStore, program: str) -> int:
    """Submit a job file with a program; return the number of the job."""
    folder = store.home / "code"
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(program)
    MachinePool(store).set_machine(QueueMachine(name="here", cpus=2))
    spec = {"name": "job", "command": ["job.py", "0"], "processes": 1, "retry": {"max_restarts": 0}}
    return JobQueue(store).submit(JobSubmission(command=("job.py",), cwd=str(folder), spec=spec))


def run_with_a_kill(home: Path, stop_at: str) -> bool:
    """Run a job with a kill and assert that it ran once; return whether something was killed."""
    store = QueueStore(home)
    jobs, folder = JobQueue(store), home / "code"
    number = submit(store, PROGRAM)
    with daemon(home, stop_at) as first:
        wait_until(lambda: first.poll() is not None or jobs.job(number).state == "succeeded")
        was_killed = first.poll() == -signal.SIGKILL
    with daemon(home):
        wait_until(lambda: jobs.job(number).state in ("succeeded", "failed"), 120.0)
    job = jobs.job(number)
    output = output_path(home, job.token).read_text()
    assert job.state == "succeeded", (stop_at, job.message, output)
    assert (folder / "log").read_text() == "start\nend\n", (stop_at, output)
    assert job.num_attempts == 1
    wait_until(lambda: clients_end(home))
    killed_clients = len(list(starts_folder(home).iterdir())) > 1
    store.close()
    return was_killed or killed_clients


@pytest.mark.slow("queue kills")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_job_over_machines_is_neither_lost_nor_run_twice(tmp_path: Path, moment: str) -> None:
    number = 0
    while run_with_a_kill(tmp_path / str(number), f"{moment}:{number}"):
        number += 1
        assert number < 100
    assert number > 3


LONG_PROGRAM = """\
import os, pathlib, signal, time
def stop(*_):
    pathlib.Path("stopped").touch()
    os._exit(3)
signal.signal(signal.SIGTERM, stop)
pathlib.Path("pid").write_text(str(os.getpid()))
while True:
    time.sleep(0.05)
"""


def cancel_with_a_kill(home: Path, stop_at: str) -> bool:
    """Cancel a job without a client, with a kill; return whether something was killed."""
    store = QueueStore(home)
    jobs, folder = JobQueue(store), home / "code"
    number = submit(store, LONG_PROGRAM)
    with daemon(home):
        wait_until(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
    rank = int((folder / "pid").read_text())
    for path in starts_folder(home).iterdir():
        for process in processes_with(f"{queue_token_variable()}={path.name}"):
            os.kill(process, signal.SIGKILL)
    wait_until(lambda: clients_end(home))
    jobs.cancel(number)
    with daemon(home, stop_at) as first:
        wait_until(lambda: first.poll() is not None or jobs.job(number).state == "cancelled")
        was_killed = first.poll() == -signal.SIGKILL
    with daemon(home):
        wait_until(lambda: jobs.job(number).state == "cancelled", 120.0)
    wait_until(lambda: clients_end(home))
    wait_until(lambda: not process_mark(rank))
    assert (folder / "stopped").exists()
    assert RunLog(Store(home)).find(jobs.job(number).token).state == "cancelled"
    killed_clients = len(list(starts_folder(home).iterdir())) > 2
    store.close()
    return was_killed or killed_clients


@pytest.mark.slow("queue kills")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_job_whose_client_is_lost_is_cancelled(tmp_path: Path, moment: str) -> None:
    number = 0
    while cancel_with_a_kill(tmp_path / str(number), f"{moment}:{number}"):
        number += 1
        assert number < 100
    assert number > 3
