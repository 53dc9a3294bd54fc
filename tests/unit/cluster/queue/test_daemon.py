"""The daemon with real processes: starts once, ends, stops, orphans, and one daemon at a time."""

import os
import signal
import threading
import time
from contextlib import contextmanager

import pytest

from slipstream.cluster.queue import (
    JobQueue,
    JobSubmission,
    MachinePool,
    QueueDaemon,
    QueueGpu,
    QueueMachine,
    QueueStore,
    ResourceRequest,
    shim,
)
from slipstream.cluster.queue.attempts import Attempt
from slipstream.cluster.queue.daemon import process_runner
from slipstream.cluster.queue.folders import fifo_path
from slipstream.cluster.queue.shapes import HostShare
from slipstream.errors import PeerError, UsageError

LIMIT_SECONDS = 60.0
WAITS_FOR_TERM = "trap 'echo saving; exit 75' TERM; echo ready; while :; do sleep 0.02; done"


@pytest.fixture
def home(tmp_path):
    """A queue with one machine of two GPUs."""
    store = QueueStore(tmp_path)
    gpu = QueueGpu(kind="H100", memory_mib=80 * 1024)
    MachinePool(store).set_machine(QueueMachine(name="a", gpus=(gpu, gpu), cpus=8))
    store.close()
    return tmp_path


@contextmanager
def daemon(home):
    """Serve a queue in a thread."""
    over = threading.Event()
    store = QueueStore(home)
    server = QueueDaemon(store, process_runner(home))
    thread = threading.Thread(target=server.serve, args=(over.is_set,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        while thread.is_alive():
            shim.poke(str(fifo_path(home)))
            thread.join(0.05)
        store.close()


def wait_for(condition):
    """Wait until a function returns something true, and return it."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


class Client:
    """Commands for a queue."""

    def __init__(self, home):
        self.home = home
        self.store = QueueStore(home)
        self.jobs = JobQueue(self.store)
        self.runner = process_runner(home)

    def submit(self, script, gpus=1, share=0, **others):
        """Submit a shell script, and wake the daemon."""
        request = ResourceRequest(gpus=gpus, gpu_memory_mib=share)
        fields = {"command": ("sh", "-c", script), "cwd": str(self.home), "request": request}
        number = self.jobs.submit(JobSubmission(**{**fields, **others}))
        shim.poke(str(fifo_path(self.home)))
        return number

    def wait(self, number, *states):
        """Wait until a job has one of some states, and return it."""
        return wait_for(lambda: (job := self.jobs.job(number)).state in states and job)

    def output(self, number):
        """Return the output of a job's newest start."""
        return self.runner.output_file(self.jobs.job(number).token).read_text()


@pytest.fixture
def client(home):
    client = Client(home)
    yield client
    client.store.close()


def attempt(token="1-1-x", script="true", share=0):
    """Return an attempt that runs a shell script on GPUs 1 and 3."""
    gpus = ((1, share or 81920), (3, share or 81920))
    return Attempt(
        token=token,
        job=1,
        state="starting",
        command=("sh", "-c", script),
        cwd="/",
        environ={"COLOUR": "red"},
        allocation=(HostShare(machine="a", gpus=gpus, gpu_units=2 * (share or 81920) / 81920),),
        shares_gpus=bool(share),
        grace_seconds=30.0,
    )


def test_jobs_run_and_their_ends_are_seen(client):
    with daemon(client.home):
        good, bad = client.submit("echo $CUDA_VISIBLE_DEVICES"), client.submit("exit 3")
        assert client.wait(good, "succeeded", "failed").state == "succeeded"
        assert client.wait(bad, "succeeded", "failed").message == "exit code 3"
        assert client.output(good) == "0\n"


def test_a_program_that_is_not_there_fails_with_its_name(client):
    with daemon(client.home):
        number = client.submit("", command=("no-such-program",))
        assert client.wait(number, "failed").exit_code == 127
        assert client.output(number) == "slipstream: no-such-program: No such file or directory\n"


def test_a_job_gets_its_share_and_variables(home):
    runner = process_runner(home)
    runner.start(attempt(script="env", share=2048))
    wait_for(lambda: runner.poll("1-1-x").state == "ended")
    found = runner.output_file("1-1-x").read_text().splitlines()
    assert {
        "CUDA_VISIBLE_DEVICES=1,3",
        "SLIPSTREAM_GPU_MEMORY=2048",
        "SLIPSTREAM_QUEUE_JOB=1",
        "SLIPSTREAM_QUEUE_HOSTS=a",
        "COLOUR=red",
        "PYTORCH_ALLOC_CONF=per_process_memory_fraction:0.0250",
        "XLA_PYTHON_CLIENT_MEM_FRACTION=0.0250",
    } <= set(found)


def test_a_token_is_started_once_however_often_it_is_asked_for(home):
    runner = process_runner(home)
    assert runner.poll("1-1-x").state == "unknown"
    threads = [
        threading.Thread(target=runner.start, args=(attempt(script="echo started"),))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(lambda: runner.poll("1-1-x").state == "ended")
    runner.start(attempt(script="echo started"))
    assert runner.output_file("1-1-x").read_text() == "started\n"


def test_a_token_that_was_stopped_is_never_started(home):
    runner = process_runner(home)
    runner.stop("1-1-x", 30.0)
    runner.start(attempt(script="echo started"))
    status = runner.poll("1-1-x")
    assert (status.state, status.exit_code) == ("ended", None)
    assert not runner.output_file("1-1-x").exists()


def test_a_higher_priority_makes_a_job_save_and_it_goes_on(client):
    with daemon(client.home):
        low = client.submit(WAITS_FOR_TERM, gpus=2, preemptible=True)
        wait_for(lambda: client.jobs.job(low).state == "running" and client.output(low))
        high = client.submit("true", gpus=2, priority=1)
        client.wait(high, "succeeded")
        wait_for(lambda: client.jobs.job(low).num_attempts == 2)
        client.wait(low, "running")
        client.jobs.cancel(low)
        shim.poke(str(fifo_path(client.home)))
        client.wait(low, "cancelled")
    kinds = [event.kind for event in client.jobs.events(low)]
    assert kinds == ["submit", "start", "preempt", "requeue", "start", "cancel", "end"]


def test_a_job_that_does_not_end_is_killed_after_the_grace_time(client):
    with daemon(client.home):
        stubborn = "trap '' TERM; echo ready; sleep 1000"
        number = client.submit(stubborn, grace_seconds=0.2)
        wait_for(lambda: client.jobs.job(number).state == "running" and client.output(number))
        client.jobs.cancel(number)
        shim.poke(str(fifo_path(client.home)))
        client.wait(number, "cancelled")


def test_processes_that_a_job_leaves_behind_are_ended_before_its_gpus_are_free(client):
    with daemon(client.home):
        number = client.submit("setsid sleep 1000 & echo $!")
        client.wait(number, "succeeded")
        assert not shim.process_mark(int(client.output(number)))


def test_another_daemon_finds_jobs_that_run_and_that_have_ended(client):
    with daemon(client.home):
        ended, runs = client.submit("read line < gate"), client.submit("read line < other")
        for name in ("gate", "other"):
            os.mkfifo(client.home / name)
        client.wait(ended, "running")
        client.wait(runs, "running")
    (client.home / "gate").write_text("go\n")
    wait_for(lambda: client.runner.poll(client.jobs.job(ended).token).state == "ended")
    with daemon(client.home):
        client.wait(ended, "succeeded", "failed")
        assert client.jobs.job(runs).state == "running"
        (client.home / "other").write_text("go\n")
        client.wait(runs, "succeeded", "failed")
    assert client.jobs.job(runs).num_attempts == 1


def test_a_job_whose_shim_was_killed_holds_its_gpus_until_its_processes_end(home):
    runner = process_runner(home)
    runner.start(attempt(script=WAITS_FOR_TERM))
    folder = runner.output_file("1-1-x").parent
    wait_for(
        lambda: runner.output_file("1-1-x").exists() and shim.processes_with(token_of("1-1-x"))
    )
    os.kill(int((folder / "shim").read_text().split()[0]), signal.SIGKILL)
    wait_for(lambda: not shim.process_mark(int((folder / "shim").read_text().split()[0])))
    assert runner.poll("1-1-x").state == "running"
    runner.stop("1-1-x", 0.0)
    wait_for(lambda: runner.poll("1-1-x").state == "ended")
    assert runner.poll("1-1-x").exit_code is None


def token_of(token):
    """Return the variable by which the processes of a token are found."""
    return f"SLIPSTREAM_QUEUE_TOKEN={token}"


class DoubtfulRunner:
    """A runner that fails once to start the first job."""

    def __init__(self, runner):
        self.runner = runner
        self.failures = 1

    def start(self, attempt):
        if attempt.job == 1 and self.failures:
            self.failures -= 1
            raise PeerError("host a does not answer")
        self.runner.start(attempt)

    def poll(self, token):
        return self.runner.poll(token)

    def stop(self, token, grace_seconds):
        self.runner.stop(token, grace_seconds)


def test_a_start_that_fails_is_tried_again_and_holds_nobody_up(client):
    first, second = client.submit("true"), client.submit("true")
    server = QueueDaemon(client.store, DoubtfulRunner(client.runner))
    server.round()
    assert client.jobs.job(first).state == "starting"
    assert client.jobs.job(second).state in ("running", "succeeded")
    server.round()
    assert client.jobs.job(first).state in ("running", "succeeded")
    assert client.jobs.job(first).num_attempts == 1


def test_one_daemon_at_a_time(client):
    with daemon(client.home):
        client.wait(client.submit("true"), "succeeded")
        second = QueueDaemon(client.store, client.runner)
        with pytest.raises(UsageError, match=f"process {os.getpid()} serves the queue in"):
            second.serve(lambda: True)
