"""`slipstream lab` as a user types it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.lab import Lab, LabSpec
from slipstream.lab import registry as labs
from slipstream.lab.iproute import processes

pytestmark = [pytest.mark.netns, pytest.mark.alone, pytest.mark.multiprocess]

COMMAND = str(Path(sys.executable).with_name("slipstream"))
NAME = "test-command"
LIMIT_SECONDS = 60.0

Wait = Callable[[Callable[[], object]], None]


def lab(*arguments: str, environ: dict[str, str] | None = None) -> Any:
    """Run `slipstream lab` and return how it ended."""
    return subprocess.run(
        [COMMAND, "lab", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, "COLUMNS": "100", **(environ or {})},
        check=False,
    )


def status_of(name: str) -> dict[str, Any]:
    """Return a lab as `status --json` shows it."""
    (found,) = [each for each in json.loads(lab("status", "--json").stdout) if each["name"] == name]
    return found


@pytest.fixture
def up() -> Iterator[None]:
    """Yield a lab of two hosts that stays up."""
    made = lab("up", "--name", NAME, "--num-hosts", "2", "--rate", "100mbit,50mbit")
    assert made.returncode == 0, made.stderr
    assert "test-command: 2 hosts of 1 rank at 100mbit or 50mbit" in made.stderr
    yield
    if (record := labs.load(NAME)) is not None:
        labs.take_down(record)


@pytest.fixture(scope="module")
def standing() -> Iterator[str]:
    """Yield the name of a running lab that no test changes."""
    with Lab(LabSpec(hosts=2), name="test-standing") as made:
        yield made.name


def test_a_lab_stays_up_and_goes_down(up: None) -> None:
    hosts = status_of(NAME)["hosts"]
    assert [host["address"] for host in hosts] == ["10.90.0.1", "10.90.0.2"]
    assert [host["rate"] for host in hosts] == [100_000_000, 50_000_000]
    spaces = [Path("/run/netns") / name for name in namespaces()]
    assert len(spaces) == 3
    assert lab("down", "--name", NAME).returncode == 0
    assert not any(space.exists() for space in spaces)
    again = lab("down", "--name", NAME)
    assert again.returncode == 2
    assert "there is no lab named 'test-command'" in again.stderr


def namespaces() -> tuple[str, ...]:
    record = labs.load(NAME)
    assert record is not None
    return record.network.namespaces


@pytest.mark.launcher("ping")
def test_a_program_runs_in_the_lab_that_is_up(up: None) -> None:
    done = lab("run", "--name", NAME, "--", "sh", "-c", "ping -q -c 1 host1 >&2; echo rank $RANK")
    assert done.returncode == 0, done.stderr
    assert "[host0:0] rank 0\n" in done.stdout
    assert "[host1:1] rank 1\n" in done.stdout
    assert "\x1b" not in done.stdout
    assert status_of(NAME)["hosts"][0]["sent_bytes"] > 0


def test_the_rank_that_fails_gives_the_exit_code(up: None) -> None:
    script = "[ $RANK = 0 ] && exec sleep 600; echo [bad] words; exit 7"
    done = lab("run", "--name", NAME, "--", "sh", "-c", script)
    assert done.returncode == 7
    assert "slipstream: rank 1 on host 1 failed first, after " in done.stderr
    assert "    [bad] words\n" in done.stderr
    assert lab("run", "--name", NAME, "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


@pytest.mark.slow("lab that stays up")
def test_links_change_are_cut_and_mended(up: None) -> None:
    for arguments in (("0", "--rate", "10mbit"), ("1", "--cut")):
        assert lab("link", "--name", NAME, *arguments).returncode == 0
    first, second = status_of(NAME)["hosts"]
    assert (first["rate"], first["is_cut"], second["is_cut"]) == (10_000_000, False, True)
    assert " cut " in lab("status").stdout
    assert lab("link", "--name", NAME, "1", "--mend").returncode == 0
    assert not status_of(NAME)["hosts"][1]["is_cut"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("link", "0"), "give one of --rate, --cut and --mend"),
        (("link", "0", "--cut", "--mend"), "give one of"),
        (("link", "x", "--cut"), "the host is 'x'; allowed: its number, or uplinks"),
        (("link", "2", "--cut"), "the host is 2; allowed: 0 to 1"),
        (("link", "uplinks", "--cut"), "cut the links of their hosts"),
        (("link", "uplinks", "--rate", "1mbit"), "the lab has no uplinks"),
        (("link", "0", "--rate", "fast"), "allowed: a number with kbit, mbit or gbit"),
        (("run", "--num-hosts", "3", "--", "true"), "is up, and options describe another"),
        (("up",), "there is a lab named 'test-standing'"),
        (("compare", "--", "ls"), "allowed: a .py file, or -m and a module"),
    ],
)
def test_what_is_not_allowed_is_explained(
    standing: str, arguments: tuple[str, ...], said: str
) -> None:
    done = lab(arguments[0], "--name", standing, *arguments[1:])
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_lab_one_is_made_for_the_run() -> None:
    options = ("--ranks-per-host", "2", "--rate", "1gbit,1gbit", "--flow-rate", "10mbit,5mbit")
    done = lab("run", "--name", "test-none", *options, "--", "sh", "-c", "echo $RANK/$WORLD_SIZE")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(
        ["[host0:0]", "[host0:1]", "[host1:2]", "[host1:3]", "0/4", "1/4", "2/4", "3/4"]
    )
    assert "no lab is up; this run has a lab of its own" in done.stderr
    assert "flows up to 10mbit or 5mbit on 2 paths" in " ".join(done.stderr.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_and_its_lab(number: signal.Signals, wait_until: Wait) -> None:
    before = set(names())
    process = start_forever()
    wait_until(lambda: len(set(names()) - before) == 1)
    assert process.stdout is not None
    assert "waiting" in process.stdout.readline()
    process.send_signal(number)
    assert process.wait(LIMIT_SECONDS) == 128 + number
    process.stdout.close()
    assert set(names()) <= before


@pytest.mark.slow("lab that stays up")
def test_a_killed_run_leaves_what_down_removes(wait_until: Wait) -> None:
    before = set(names())
    process = start_forever()
    assert process.stdout is not None
    assert "waiting" in process.stdout.readline()
    (name,) = set(names()) - before
    record = labs.load(name)
    assert record is not None
    process.kill()
    process.wait(LIMIT_SECONDS)
    process.stdout.close()
    assert status_of(name) == {"name": name, "is_stale": True}
    assert f"lab down --name {name}" in lab("status").stdout
    assert lab("down", "--name", name).returncode == 0
    assert not record.network.exists()
    assert name not in names()


def start_forever() -> "subprocess.Popen[str]":
    """Start a run that does not end, in a lab of its own."""
    command = [COMMAND, "lab", "run", "--name", "test-none", "--num-hosts", "1", "--"]
    return subprocess.Popen(
        [*command, "sh", "-c", "echo waiting; sleep 600"], stdout=subprocess.PIPE, text=True
    )


def names() -> list[str]:
    return [record.name for record in labs.load_all()]


DOWN_ALL = """
mount -t tmpfs lab /run
slipstream lab up --name stays --num-hosts 1
slipstream lab run --name none --num-hosts 1 -- sh -c 'echo waiting; exec sleep 600' >lines &
until grep -q waiting lines; do read -t 0.05 nothing </dev/zero || true; done
slipstream lab down --all
slipstream lab status --json
kill -9 $!
wait $! || true
slipstream lab down --all
slipstream lab status --json
ip netns list
"""


@pytest.mark.slow("lab that stays up")
@pytest.mark.launcher("unshare")
def test_down_all_spares_the_labs_of_programs_that_run(tmp_path: Path) -> None:
    # With a /run of its own, since others may have labs on this machine.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-ec", DOWN_ALL],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\w+ belongs to process \d+", done.stderr)
    decoder = json.JSONDecoder()
    while_it_ran, end = decoder.raw_decode(done.stdout)
    assert [each["is_stale"] for each in while_it_ran] == [False]
    assert done.stdout[end:].split() == ["[]"]


def test_help_names_what_there_is() -> None:
    shown = lab("--help").stdout
    for name in ("up", "run", "compare", "link", "status", "down"):
        assert f" {name} " in shown
    assert "slipstream lab up --num-hosts 4" in shown


def test_a_namespace_that_was_removed_has_no_processes() -> None:
    assert processes("slipstream-lab-removed-host0") == []
