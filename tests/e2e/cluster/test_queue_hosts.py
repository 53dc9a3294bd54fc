"""`slipstream queue` over real sshd hosts: the daemon is at the desk, the jobs run on the hosts."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_hosts import Hosts
from host import Host, Program
from run_jobs import HOME, SLIPSTREAM, left_behind, write_job
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
]


class QueueDesk:
    """The queue of the user at the desk."""

    def __init__(self, hosts: Hosts, home: str) -> None:
        self.hosts = hosts
        self.desk: Host = hosts.desk
        self.home = f"{HOME}/{home}"
        self.environ = {"SLIPSTREAM_HOME": self.home}

    def call(self, *arguments: str) -> Any:
        """Call `slipstream queue` at the desk, and return what it prints as JSON."""
        command, *others = arguments
        done = self.desk.run(SLIPSTREAM, "queue", command, "--json", *others, environ=self.environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def submit(self, name: str, command: str, *options: str, **fields: Any) -> int:
        """Submit a job file; return its number."""
        write_job(self.desk, name, command, **{"on": "local", **fields})
        return self.call("submit", *options, f"{name}/{name}.yaml")["job"]

    def job(self, number: int) -> dict[str, Any]:
        """Return a job."""
        return self.call("show", str(number))

    def wait(self, number: int, *states: str) -> dict[str, Any]:
        """Wait until a job has one of some states, and return it."""
        wait_until(lambda: self.job(number)["state"] in states, 100.0)
        return self.job(number)

    def output(self, number: int) -> str:
        """Return what the newest start of a job has printed so far."""
        path = self.desk.path(self.job(number)["output"])
        return path.read_text() if path.exists() else ""

    def events(self, number: int) -> list[str]:
        """Return the kinds of the events of a job."""
        return [event["kind"] for event in self.call("events", str(number))]

    @contextlib.contextmanager
    def daemon(self, *options: str) -> Iterator[Program]:
        """Run the daemon, and kill it at the end."""
        log = self.desk.write(f"{HOME}/daemon.log", "")
        program = self.desk.start(
            SLIPSTREAM, "queue", "serve", *options, environ=self.environ, log=log
        )
        wait_until(lambda: "serving the queue" in log.read_text())
        yield program
        if program.process.poll() is None:
            program.kill()


@pytest.fixture
def queue(hosts: Hosts, tmp_path: Path) -> QueueDesk:
    """Return a queue with two machines behind ssh."""
    desk = QueueDesk(hosts, f"queue-{tmp_path.name}")
    added = desk.call("machines", "add", "host1", "host2")
    assert [machine["login"] for machine in added] == ["host1", "host2"]
    assert all(machine["cpus"] > 0 and machine["memory_mib"] > 0 for machine in added)
    return desk


@pytest.mark.slow("job of the queue over hosts")
def test_a_job_file_runs_on_two_hosts_and_the_daemon_is_killed(queue: QueueDesk) -> None:
    fields = {"hosts": 2, "outputs": ["result.txt"]}
    with queue.daemon() as daemon:
        number = queue.submit("both", "steps.py 40 0.1", **fields)
        wait_until(lambda: "[host2:1] step 3\n" in queue.output(number), 100.0)
        daemon.kill()
    with queue.daemon():
        job = queue.wait(number, "succeeded", "failed")
    text = queue.output(number)
    assert job["state"] == "succeeded", text
    assert text.count("step 0\n") == 2
    assert "[host1:0] step 39\n" in text
    assert job["num_attempts"] == 1
    assert queue.events(number) == ["submit", "start", "end"]
    assert queue.desk.path(f"{HOME}/both/result.txt").read_text() == "40 steps on host1\n"
    for name in ("host1", "host2"):
        wait_until(lambda name=name: not left_behind(queue.hosts[name]))


@pytest.mark.slow("trouble of a queued run")
def test_a_killed_client_of_a_run_is_followed_by_another_one(queue: QueueDesk) -> None:
    with queue.daemon():
        number = queue.submit("follow", "steps.py 50 0.1")
        wait_until(lambda: "step 3\n" in queue.output(number), 100.0)
        (client,) = clients(queue)
        queue.desk.output("kill", "-9", client, user="root")
        job = queue.wait(number, "succeeded", "failed")
        assert job["state"] == "succeeded", queue.output(number)
    assert queue.output(number).count("step 0\n") == 1
    assert len(runs(queue)) == 1


@pytest.mark.slow("preemption of a job over hosts")
def test_a_job_makes_room_and_goes_on_from_its_checkpoint(queue: QueueDesk) -> None:
    cpus = max(machine["cpus"] for machine in queue.call("machines"))
    whole = {"hosts": 2, "resources": {"cpus": cpus}}
    with queue.daemon():
        low = queue.submit("low", "saving.py /shared/low 40", "--preemptible", **whole)
        wait_until(lambda: "step 3\n" in queue.output(low), 100.0)
        high = queue.submit("high", "steps.py 2 0", "--priority", "1", **whole)
        first = queue.output(low)
        assert queue.wait(high, "succeeded", "failed")["state"] == "succeeded"
        done = queue.wait(low, "succeeded", "failed")
    assert done["state"] == "succeeded", queue.output(low)
    assert done["num_attempts"] == 2
    assert queue.events(low) == ["submit", "start", "preempt", "requeue", "start", "end"]
    assert "step 3\n" in first
    assert "begins at 0\n" not in queue.output(low)
    states = [run["state"] for run in runs(queue)]
    assert sorted(states) == ["cancelled", "succeeded", "succeeded"]


@pytest.mark.slow("trouble of a queued run")
def test_a_machine_that_is_out_of_reach_rests_and_others_are_used(queue: QueueDesk) -> None:
    queue.hosts["host1"].kill()
    try:
        with queue.daemon():
            number = queue.submit(
                "elsewhere", "steps.py 2 0", ssh={"options": ["ConnectTimeout=1"]}
            )
            job = queue.wait(number, "succeeded", "failed")
        assert job["state"] == "succeeded", queue.output(number)
        assert [share["machine"] for share in job["allocation"]] == ["host2"]
        assert queue.events(number) == ["submit", "start", "requeue", "start", "end"]
        machines = {machine["name"]: machine["is_open"] for machine in queue.call("machines")}
        assert machines == {"host1": False, "host2": True}
    finally:
        queue.hosts["host1"].boot()


@pytest.mark.slow("trouble of a queued run")
def test_ranks_see_the_gpus_that_the_scheduler_has_granted(queue: QueueDesk) -> None:
    for name in ("host1", "host2"):
        give_gpus(queue.hosts[name])
    found = queue.call("machines", "add", "host1", "host2")
    assert [len(machine["gpus"]) for machine in found] == [2, 2]
    fields = {"hosts": 2, "processes": "gpu", "resources": {"gpus": 1}}
    with queue.daemon():
        numbers = [queue.submit(f"gpu{i}", "visible.py", **fields) for i in range(2)]
        for number in numbers:
            assert queue.wait(number, "succeeded", "failed")["state"] == "succeeded"
    seen = [line for number in numbers for line in queue.output(number).splitlines()]
    lines = sorted(line.partition("] ")[2] for line in seen if "sees GPU" in line)
    assert lines == [f"{name} sees GPU {gpu}" for name in ("host1", "host2") for gpu in (0, 1)]


@pytest.mark.slow("trouble of a queued run")
def test_a_job_is_cancelled_while_it_starts_and_while_it_runs(queue: QueueDesk) -> None:
    with queue.daemon():
        early = queue.submit("early", "steps.py 1000 0.1", software={"setup": "sleep 5"})
        wait_until(lambda: runs(queue))
        queue.call("cancel", str(early))
        assert queue.wait(early, "cancelled")["exit_code"] is not None
        late = queue.submit("late", "steps.py 1000 0.1")
        wait_until(lambda: "step 1\n" in queue.output(late), 100.0)
        queue.call("cancel", str(late))
        queue.wait(late, "cancelled")
    assert [run["state"] for run in runs(queue)] == ["cancelled", "cancelled"]
    for name in ("host1", "host2"):
        wait_until(lambda name=name: not left_behind(queue.hosts[name]))


@pytest.mark.slow("trouble of a queued run")
def test_the_speed_of_a_job_comes_to_the_daemon(queue: QueueDesk) -> None:
    with queue.daemon():
        number = queue.submit("told", "reports.py 40")
        wait_until(lambda: queue.job(number)["output"], 100.0)
        progress = queue.desk.path(queue.job(number)["output"]).with_name("progress")
        wait_until(lambda: progress.exists() and progress.read_text(), 100.0)
        assert json.loads(progress.read_text().splitlines()[0]) == {
            "hosts": 1,
            "samples_per_second": 10.0,
        }
        queue.call("cancel", str(number))
        queue.wait(number, "cancelled")


def clients(queue: QueueDesk) -> list[str]:
    """Return the processes of the clients at the desk, as the desk counts."""
    found = queue.desk.run("pgrep", "-f", "queue.runs.client").stdout
    return found.split()


def runs(queue: QueueDesk) -> list[dict[str, Any]]:
    """Return the runs in the records of the desk, the oldest first."""
    done = queue.desk.run(SLIPSTREAM, "cluster", "ls", "--all", "--json", environ=queue.environ)
    return json.loads(done.stdout)


def give_gpus(host: Host) -> None:
    """Let a host state two GPUs, which it does not have."""
    listed = "#!/bin/sh\nprintf 'H100, 81920\\nH100, 81920\\n'\n"
    host.write(f"{HOME}/bin/nvidia-smi", listed, 0o755)
    host.write(f"{HOME}/.bashrc", f"export PATH={HOME}/bin:$PATH\n")
