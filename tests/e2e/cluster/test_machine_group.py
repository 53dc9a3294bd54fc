"""`slipstream cluster up` and what follows: moto makes machines, which are hosts that boot."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from cluster_hosts import Hosts
from engine_contract import SIGKILLED, SLIPSTREAM
from host_boot import HOME
from machine_room import DEADLINE_FILE, MachineRoom, open_machine_room
from moto_server import IMAGE, INSTANCE_TYPE, SERVER
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
    pytest.mark.skipif(not SERVER.exists(), reason="moto's server is not installed"),
]

UP = ("--on", "aws", "--type", INSTANCE_TYPE, "--image", IMAGE, "--open-to", "10.91.0.1/32")
SECONDS = 120.0


@pytest.fixture(scope="module")
def room(hosts: Hosts) -> Iterator[MachineRoom]:
    """Yield a cloud whose machines are hosts."""
    with open_machine_room(hosts) as room:
        yield room


def cluster(room: MachineRoom, *arguments: str, stop: str = "") -> "CompletedProcess[str]":
    """Call `slipstream cluster` at the desk."""
    environ = {**room.environ, **({"SLIPSTREAM_STOP_AT": stop} if stop else {})}
    desk = room.hosts.desk
    return desk.run(SLIPSTREAM, "cluster", *arguments, environ=environ, seconds=SECONDS)


def answer(room: MachineRoom, *arguments: str) -> Any:
    """Return what `slipstream cluster ... --json` prints."""
    done = cluster(room, arguments[0], "--json", *arguments[1:])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow("life of a group of machines")
def test_a_group_is_created_used_and_given_back(room: MachineRoom) -> None:
    done = cluster(room, "up", "lab", "--machines", "2", *UP)
    assert done.returncode == 2
    assert "nobody can be asked for the cost here; allow it with --yes" in done.stderr
    assert f"2 x {INSTANCE_TYPE} for 1.05 US dollars an hour, at most 25.2" in done.stderr

    group = answer(room, "up", "lab", "--machines", "2", *UP, "--yes")
    assert [machine["name"] for machine in group["machines"]] == ["task0.lab", "task1.lab"]
    room.wait_for(2)
    again = answer(room, "up", "lab", "--machines", "2", *UP)  # nothing costs anything new
    assert again["machines"] == group["machines"]

    inner = group["machines"][1]["inner_address"]
    results = answer(room, "exec", "lab", "--", f"cd /tmp; ssh {inner} hostname")
    assert [result["output"] for result in results] == ["vm2\n", "vm2\n"]
    shown = cluster(room, "exec", "lab", "--", "pwd; false")
    assert shown.returncode == 1
    assert sorted(shown.stdout.splitlines()) == ["[task0.lab] /tmp", "[task1.lab] /tmp"]

    desk = room.hosts.desk
    desk.write(f"{HOME}/note.txt", "a note")
    assert cluster(room, "scp", "lab", "note.txt", "task1:copied.txt").returncode == 0
    assert cluster(room, "ssh", "lab", "task1", "cat copied.txt").stdout.strip() == "a note"
    assert cluster(room, "ssh", "task1.lab", "", "hostname").stdout.strip() == "vm2"
    assert cluster(room, "ssh", "lab", "", "hostname").stdout.strip() == "vm1"
    assert cluster(room, "scp", "lab", "task1:copied.txt", "back.txt").returncode == 0
    assert desk.output("cat", f"{HOME}/back.txt") == "a note"
    assert "has no machine 'task9'" in cluster(room, "ssh", "lab", "task9").stderr
    # script gives tmux a terminal; its input ends, and with it the shell of the session.
    tmux = f"{SLIPSTREAM} cluster tmux lab task1"
    script = ("script", "-qec", tmux, "/dev/null")
    environ = {**room.environ, "TERM": "xterm"}
    shown = desk.run(*script, environ=environ, text="echo $((6 * 7)) > seen\rexit\r")
    assert shown.returncode == 0, shown.stdout
    assert cluster(room, "ssh", "lab", "task1", "cat /tmp/seen").stdout.strip() == "42"

    assert cluster(room, "down", "lab").returncode == 0
    room.wait_for(0)
    (cost,) = answer(room, "cost", "lab")
    assert (cost["num_open"], cost["per_hour"], cost["has_prices"]) == (0, 0, True)
    assert not room.hosts.desk.path(f"{HOME}/.slipstream/keys/groups/lab").exists()


@pytest.mark.slow("life of a group of machines", represents=False)
def test_a_group_is_stopped_and_started_and_tells_its_load_and_cost(room: MachineRoom) -> None:
    answer(room, "up", "still", *UP, "--yes")
    other = cluster(room, "up", "still", *UP[:3], "p3.2xlarge", *UP[4:])
    assert "the group still exists with instance_type 'g4dn.xlarge'" in other.stderr
    (load,) = answer(room, "top", "still")
    assert (load["host"], load["problem"]) == ("task0.still", "")
    assert answer(room, "mount", "still") == []
    (machine,) = answer(room, "stop", "still")["machines"]
    assert machine["state"] == "stopped"
    room.wait_for(0)
    later = answer(room, "extend", "still", "30h")["deadline_at"]  # while no machine runs
    answer(room, "start", "still")
    (host,) = room.running
    assert abs(float(host.path(DEADLINE_FILE).read_text()) - later) < 2.0
    (result,) = answer(room, "exec", "still", "--machine", "task0", "--", "ls -d .ssh; pwd")
    assert result["output"] == f".ssh\n{HOME}\n"
    (cost,) = answer(room, "cost", "still")
    assert (cost["per_hour"], cost["most"]) == (0.526, pytest.approx(12.624, rel=1e-3))
    assert 0.0 < cost["spent"] < 0.2
    (listed,) = answer(room, "ls")
    assert [machine["name"] for machine in listed["machines"]] == ["task0.still"]
    assert answer(room, "gc")["doomed"] == []
    assert cluster(room, "down", "still").returncode == 0
    assert answer(room, "ls") == []


@pytest.mark.slow("kill of a client")
def test_a_client_that_is_killed_while_it_creates_is_followed_by_another_one(
    room: MachineRoom,
) -> None:
    names: set[str] = set()
    # 12 to 34: from the network over the machines to their set-up.
    for stop in ("after:20", "before:25", "after:34"):
        done = cluster(room, "up", "killed", "--machines", "2", *UP, "--yes", stop=stop)
        assert done.returncode in (0, *SIGKILLED), done.stderr
        names |= {host.name for host in room.running}
    answer(room, "up", "killed", "--machines", "2", *UP, "--yes")
    hosts = room.wait_for(2)
    assert names <= {host.name for host in hosts}  # none was made twice
    cluster(room, "down", "killed", stop="after:10")
    assert cluster(room, "down", "killed").returncode == 0
    room.wait_for(0)
    report = answer(room, "gc", "--on", "aws")
    assert (report["doomed"], report["kept"], report["leaks"]) == ([], [], [])


@pytest.mark.slow("deadline without a client")
def test_machines_end_at_their_deadline_without_a_client(room: MachineRoom) -> None:
    answer(room, "up", "short", *UP, "--yes", "--deadline", "1h")
    (host,) = room.wait_for(1)
    later = answer(room, "extend", "short", "2h")
    assert abs(float(host.path(DEADLINE_FILE).read_text()) - later["deadline_at"]) < 2.0
    assert later["deadline_at"] > time.time() + 7000.0
    host.path(DEADLINE_FILE).write_text("1\n")  # the time has come
    room.wait_for(0)
    assert answer(room, "status", "short")["machines"] == []
    assert cluster(room, "down", "short").returncode == 0
    assert answer(room, "gc", "--on", "aws")["kept"] == []


FAKE_TENSORBOARD = """\
import argparse, http.server
parser = argparse.ArgumentParser()
for name in ("--logdir", "--host", "--port"):
    parser.add_argument(name)
options = parser.parse_args()
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(options.logdir.encode())
http.server.HTTPServer((options.host, int(options.port)), Page).serve_forever()
"""


@pytest.mark.slow("life of a group of machines", represents=False)
def test_tensorboard_is_reached_through_ssh_and_ends_with_its_command(
    room: MachineRoom, tmp_path: Path
) -> None:
    answer(room, "up", "board", *UP, "--yes")
    (host,) = room.wait_for(1)
    missing = cluster(room, "tensorboard", "board", "--logdir", "runs")
    assert "task0.board has no TensorBoard" in missing.stderr
    host.write(f"{HOME}/.local/bin/tensorboard", "#!/bin/sh\n", 0o755)
    site = host.output("python3", "-c", "import site; print(site.getusersitepackages())").strip()
    host.write(f"{site}/tensorboard/__init__.py", "")
    host.write(f"{site}/tensorboard/main.py", FAKE_TENSORBOARD)
    log = tmp_path / "log"
    arguments = ("cluster", "tensorboard", "board", "--logdir", "runs", "--json")
    client = room.hosts.desk.start(SLIPSTREAM, *arguments, environ=room.environ, log=log)
    wait_until(lambda: "Ctrl-C ends it" in log.read_text())
    url = json.loads(log.read_text().partition("Ctrl-C")[0])["url"]
    page = room.hosts.desk.output(
        "python3", "-c", f"import urllib.request as r; print(r.urlopen({url!r}).read())"
    )
    assert page == "b'runs'\n"
    client.kill()
    wait_until(lambda: not any("--logdir" in line for line in host.processes().values()))
    assert cluster(room, "down", "board").returncode == 0
