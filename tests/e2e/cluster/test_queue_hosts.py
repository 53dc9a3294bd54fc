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
