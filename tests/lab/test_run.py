"""Ranks in a lab: what they get, what is said when one fails, and that nothing is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from slipstream.errors import SlipstreamError, UnsupportedError, UsageError
from slipstream.lab import Lab, LabSpec
from slipstream.lab import registry as labs

pytestmark = pytest.mark.netns

Wait = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(hosts=2, ranks_per_host=2)) as made:
        yield made


def processes_in(lab: Lab) -> list[int]:
    """Return what runs in the namespaces of a lab, as far as it has not ended."""
    found: list[int] = []
    for namespace in lab.namespaces:
        command = ["ip", "netns", "pids", namespace]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found += map(int, done.stdout.split())
    return [pid for pid in found if is_running(pid)]


def is_running(pid: int) -> bool:
    """Return whether the process exists and has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def test_a_rank_knows_its_place(lab: Lab) -> None:
    names = "RANK LOCAL_RANK LOCAL_WORLD_SIZE WORLD_SIZE GROUP_RANK SLIPSTREAM_HOST_ID"
    show = " ".join(f"${name}" for name in names.split())
    result = lab.run(shell(f"echo {show} $GLOO_SOCKET_IFNAME $OMP_NUM_THREADS"))
    assert [lines[0] for lines in result.lines] == [
        "0 0 2 4 0 lab-host0 lab0 1",
        "1 1 2 4 0 lab-host0 lab0 1",
        "2 0 2 4 1 lab-host1 lab0 1",
        "3 1 2 4 1 lab-host1 lab0 1",
    ]


def test_all_ranks_have_one_key_and_one_master_and_the_next_run_others(lab: Lab) -> None:
    script = shell("echo $SLIPSTREAM_JOB_KEY $MASTER_ADDR:$MASTER_PORT")
    runs = [{lines[0] for lines in lab.run(script).lines} for _ in range(2)]
    assert [len(lines) for lines in runs] == [1, 1]
    assert runs[0] != runs[1]
    ((key, master),) = (line.split() for line in runs[0])
    assert len(key) == 64
    assert master.startswith(f"{lab.addresses[0]}:")


def test_ranks_of_racks_know_theirs() -> None:
    with Lab(LabSpec(hosts=2, racks=2, uplink="1gbit")) as lab:
        result = lab.run(shell("echo $SLIPSTREAM_RACK"))
    assert [lines[0] for lines in result.lines] == ["lab-rack0", "lab-rack1"]


def test_variables_can_be_chosen(lab: Lab) -> None:
    chosen = {"OMP_NUM_THREADS": "3", "SLIPSTREAM_HOST_ID": "same", "RANK": "9"}
    result = lab.run(shell("echo $OMP_NUM_THREADS $SLIPSTREAM_HOST_ID $RANK"), environ=chosen)
    assert [lines[0] for lines in result.lines] == [f"3 same {rank}" for rank in range(4)]


def test_a_run_can_be_smaller_than_the_lab(lab: Lab) -> None:
    result = lab.run(shell("echo $RANK/$WORLD_SIZE"), hosts=1, ranks_per_host=3)
    assert [lines[0] for lines in result.lines] == ["0/3", "1/3", "2/3"]
    with pytest.raises(UsageError, match="hosts is 3; allowed: 1 to 2"):
        lab.run(["true"], hosts=3)


def test_one_run_teaches_the_next_nothing(lab: Lab) -> None:
    result = lab.run(["cat", "/proc/sys/net/ipv4/tcp_no_metrics_save"])
    assert result.lines == (("1",),) * 4


def test_hosts_have_the_usual_congestion_control(lab: Lab) -> None:
    result = lab.run(["cat", "/proc/sys/net/ipv4/tcp_congestion_control"])
    assert result.lines == (("cubic",),) * 4


def test_hosts_have_it_where_the_machine_has_another() -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    before = allowed.read_text()
    allowed.write_text("reno")
    try:
        with Lab(LabSpec(hosts=1)) as made:
            result = made.run(["cat", "/proc/sys/net/ipv4/tcp_congestion_control"])
    finally:
        allowed.write_text(before)
    assert result.lines == (("cubic",),)


def test_hosts_know_one_another_by_name(lab: Lab) -> None:
    result = lab.run(["getent", "hosts", "host1"])
    assert {lines[0].split()[0] for lines in result.lines} == {lab.addresses[1]}


def test_a_host_sees_its_own_link_and_nothing_of_this_machine(lab: Lab) -> None:
    result = lab.run(["ls", "/sys/class/net"])
    assert set(result.lines) == {("lab0", "lo")}


def test_pinned_ranks_have_one_core(lab: Lab) -> None:
    script = "import os; print(len(os.sched_getaffinity(0)))"
    assert lab.run([sys.executable, "-c", script], pin=True).lines == (("1",),) * 4


def test_lines_come_as_they_are_written_and_overwritten_ones_in_their_last_state(
    lab: Lab,
) -> None:
    heard: list[tuple[int, str]] = []
    script = shell(r"printf 'one\n10%%\r20%%\rdone\nno end'; echo late >&2")
    result = lab.run(script, hosts=1, ranks_per_host=1, on_line=lambda *line: heard.append(line))
    assert result.lines == (("one", "done", "no endlate"),)
    assert heard == [(0, "one"), (0, "done"), (0, "no endlate")]


def test_a_listener_that_fails_ends_the_run_and_is_heard(lab: Lab) -> None:
    def listen(rank: int, text: str) -> None:
        raise ValueError(f"{rank} {text}")

    with pytest.raises(ValueError, match=r"[0-3] word"):
        lab.run(shell("echo word; sleep 600"), on_line=listen)
    assert processes_in(lab) == []


def test_the_first_rank_that_fails_is_named_and_ends_the_others(lab: Lab) -> None:
    script = shell("if [ $RANK = 2 ]; then echo last words; exit 3; fi; sleep 600 & wait")
    began = time.monotonic()
    with pytest.raises(SlipstreamError) as caught:
        lab.run(script)
    assert str(caught.value).startswith("rank 2 on host 1 failed first, after ")
    assert str(caught.value).endswith("exit code 3; its last lines:\n    last words")
    assert time.monotonic() - began < 10
    assert processes_in(lab) == []


def test_what_ignores_the_end_or_hides_from_it_is_killed(lab: Lab) -> None:
    script = shell("trap '' TERM; setsid sleep 600 & [ $RANK = 1 ] && kill -9 $$; sleep 600")
    result = lab.run(script, check=False)
    assert result.failure is not None
    assert (result.failure.rank, result.failure.status) == (1, -signal.SIGKILL)
    assert "rank 1 on host 0 failed first" in str(result.failure)
    assert "SIGKILL; it wrote nothing" in str(result.failure)
    assert processes_in(lab) == []


def test_a_run_that_takes_too_long_is_ended(lab: Lab) -> None:
    result = lab.run(shell("[ $RANK = 0 ] || exec sleep 600"), timeout_seconds=0.5, check=False)
    assert result.failure is not None
    assert result.failure.rank == 1
    assert "still running" in str(result.failure)
    assert processes_in(lab) == []


def test_a_run_that_is_ended_has_no_failure(lab: Lab, wait_until: Wait) -> None:
    run = lab.start(["sleep", "600"])
    wait_until(lambda: len(processes_in(lab)) == 4)
    assert run.is_running
    run.end()
    assert run.wait().failure is None
    assert processes_in(lab) == []


def test_a_program_that_is_not_there_is_named(lab: Lab) -> None:
    with pytest.raises(SlipstreamError, match="no-such-program"):
        lab.run(["no-such-program"])


def test_down_kills_what_runs_and_leaves_nothing(wait_until: Wait) -> None:
    lab = Lab(LabSpec(hosts=2), name="test-down")
    lab.up()
    run = lab.start(["sleep", "600"])
    wait_until(lambda: len(processes_in(lab)) == 2)
    lab.down()
    assert run.wait().failure is not None
    assert traces_of(lab) == []
    lab.down()


def traces_of(lab: Lab) -> list[str]:
    """Return what can be seen of a lab on this machine."""
    files = [labs.FOLDER / f"{lab.name}.json", *(Path("/etc/netns") / n for n in lab.namespaces)]
    spaces = [Path("/run/netns") / name for name in lab.namespaces]
    return [str(path) for path in (*files, *spaces) if path.exists()]


def test_a_lab_needs_root(tmp_path: Path) -> None:
    script = tmp_path / "nobody.py"
    script.write_text(
        "import os\nfrom slipstream.lab import Lab\nos.setresuid(65534, 65534, 65534)\nLab().up()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert UnsupportedError.__name__ in done.stderr
    assert "user 65534 is not allowed; run it as root, or in a user namespace" in done.stderr


def test_a_name_is_taken_once() -> None:
    with Lab(LabSpec(hosts=1), name="test-once") as first:
        with pytest.raises(UsageError, match="there is a lab named 'test-once'"):
            Lab(name="test-once").up()
        assert Lab.attach("test-once").namespaces == first.namespaces
    with pytest.raises(UsageError, match="there is no lab named 'test-once'"):
        Lab.attach("test-once")
    with pytest.raises(UsageError, match="allowed: up to 32 letters"):
        Lab(name="../x")


def test_what_a_killed_owner_left_is_stale_and_can_be_taken_down(wait_until: Wait) -> None:
    script = (
        "from slipstream.lab import Lab, LabSpec\n"
        "with Lab(LabSpec(hosts=2), name='test-killed') as lab:\n"
        "    lab.run(['sh', '-c', 'setsid sleep 600 & sleep 600'])\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script])
    wait_until(lambda: (record := labs.load("test-killed")) and record.network.exists())
    lab = Lab.attach("test-killed")
    wait_until(lambda: len(processes_in(lab)) == 6)
    owner.kill()
    owner.wait()
    record = labs.load("test-killed")
    assert record is not None
    assert record.is_stale
    with pytest.raises(UsageError, match="is gone"):
        Lab.attach("test-killed")
    labs.take_down(record)
    assert processes_in(lab) == []
    assert traces_of(lab) == []


def test_a_lab_of_an_earlier_boot_is_stale_and_gives_way_to_a_new_one() -> None:
    earlier = Lab(LabSpec(hosts=1), name="test-boot", stays=True)
    earlier.up()
    path = labs.FOLDER / "test-boot.json"
    path.write_text(path.read_text().replace(labs.boot_identifier(), "another"))
    record = labs.load("test-boot")
    assert record is not None
    assert record.is_stale
    with Lab(LabSpec(hosts=1), name="test-boot") as later:
        assert not any((Path("/run/netns") / name).exists() for name in earlier.namespaces)
        assert labs.load("test-boot") != record
    assert traces_of(later) == []


def test_an_interrupted_run_ends_its_ranks(wait_until: Wait) -> None:
    script = (
        "from slipstream.lab import Lab, LabSpec\n"
        "with Lab(LabSpec(hosts=2), name='test-interrupt') as lab:\n"
        "    lab.run(['sleep', '600'])\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (record := labs.load("test-interrupt")) and record.network.exists())
    lab = Lab.attach("test-interrupt")
    wait_until(lambda: len(processes_in(lab)) == 2)
    os.kill(owner.pid, signal.SIGINT)
    _, errors = owner.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert traces_of(lab) == []
