"""`slipstream run --min --max` on this host, with real processes that do not communicate."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

Run = Callable[..., Any]  # conftest.Launch is what it returns
Wait = Callable[[Callable[[], object]], None]


def shown(output: str, name: str) -> dict[str, str]:
    """Return the values of a variable that processes have shown, by the label of the process."""
    pattern = rf"^\[(?P<label>[^\]]+)\]\s+{name}=(?P<value>.*)$"
    return {found["label"]: found["value"] for found in re.finditer(pattern, output, re.MULTILINE)}


@pytest.fixture
def hosts(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that sets the lines of a program that prints hosts, and returns it."""
    program, lines = tmp_path / "hosts.sh", tmp_path / "lines"
    program.write_text(f"#!/bin/sh\ncat {lines}\n")
    program.chmod(0o755)

    def set_lines(text: str) -> Path:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(lines)
        return program

    return set_lines


def test_a_process_that_fails_is_replaced_and_the_others_go_on(run: Run, tmp_path: Path) -> None:
    joined = tmp_path / "joined"
    names = ("RANK", "WORLD_SIZE", "SLIPSTREAM_JOINS", "SLIPSTREAM_MEMBER_PORT")
    shows = [f"show={name}" for name in (*names, "SLIPSTREAM_MEMBERS", "SLIPSTREAM_SLOT")]
    actions = (*shows, "1:kill=SIGKILL", f"join:leave={joined}", f"await={joined}")
    launch = run("-n", "3", "--min", "2", "act.py", *actions)
    assert launch.finish() == 0, launch.errors
    assert shown(launch.output, "RANK") == {"0": "0", "1": "1", "2": "2", "slot 1": "None"}
    assert shown(launch.output, "WORLD_SIZE") == {"0": "3", "1": "3", "2": "3", "slot 1": "None"}
    joins = {"0": "0", "1": "0", "2": "0", "slot 1": "1"}
    assert shown(launch.output, "SLIPSTREAM_JOINS") == joins
    slots = {"0": "0", "1": "1", "2": "2", "slot 1": "1"}
    assert shown(launch.output, "SLIPSTREAM_SLOT") == slots
    ports = shown(launch.output, "SLIPSTREAM_MEMBER_PORT")
    assert ports["slot 1"] == ports["1"]
    assert len(set(ports.values())) == 3
    members = ",".join(f"127.0.0.1:{ports[rank]}" for rank in "012")
    assert set(shown(launch.output, "SLIPSTREAM_MEMBERS").values()) == {members}
    assert re.search(
        r"rank 1 on localhost failed after [\d.]+ s: killed by SIGKILL; the next one starts in 1 s;"
        r" 2 processes running\n",
        launch.errors,
    )
    assert "slot 1 on localhost starts, to join the job; 3 processes running\n" in launch.errors


def test_variables_of_other_launchers_do_not_reach_a_process_that_joins(
    run: Run, tmp_path: Path
) -> None:
    joined = tmp_path / "joined"
    names = ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "LOCAL_RANK", "MASTER_ADDR")
    environ = dict.fromkeys(names, "7")
    shows = [f"show={name}" for name in names]
    actions = (*shows, "1:exit=3", f"join:leave={joined}", f"await={joined}")
    launch = run("-n", "2", "--min", "1", "act.py", *actions, environ=environ)
    assert launch.finish() == 0, launch.errors
    for name in names:
        assert shown(launch.output, name)["slot 1"] == "None"
    assert shown(launch.output, "HOROVOD_RANK")["0"] == "0"


def test_a_job_of_a_process_of_an_elastic_job_is_another_job(run: Run) -> None:
    """The ranks of an evaluation once joined the training that had started it."""
    part = {"JOINS": "1", "MEMBERS": "127.0.0.1:9", "MEMBER_PORT": "20000", "MEMBER_FD": "19"}
    names = [f"SLIPSTREAM_{name}" for name in part]
    environ = dict(zip(names, part.values(), strict=True))
    launch = run("-n", "1", "act.py", *(f"show={name}" for name in names), environ=environ)
    assert launch.finish() == 0, launch.errors
    for name in names:
        assert shown(launch.output, name) == {"0": "None"}


def test_a_process_that_leaves_is_no_failure_and_is_replaced(run: Run, tmp_path: Path) -> None:
    joined = tmp_path / "joined"
    actions = ("1:exit=143", f"join:leave={joined}", f"await={joined}")
    launch = run("-n", "2", "--min", "1", "--max-restarts", "0", "act.py", *actions)
    assert launch.finish() == 0, launch.errors
    assert (
        "rank 1 on localhost has left: exit code 143; the next one starts in 1 s" in launch.errors
    )


def test_processes_that_wait_to_join_end_when_the_first_ones_have_finished(
    run: Run, tmp_path: Path
) -> None:
    joined = tmp_path / "joined"
    join = ("join:last=SIGTERM", f"join:leave={joined}", "join:wait")
    launch = run("-n", "3", "--min", "1", "act.py", "2:exit=1", *join, f"await={joined}")
    assert launch.finish() == 0, launch.errors
    assert "[slot 2] goodbye after SIGTERM\n" in launch.output
    assert "has finished, so no process starts any more" in launch.errors
    assert launch.descendants() == []


def test_a_process_that_waits_and_ignores_sigterm_is_killed_after_the_grace(
    run: Run, tmp_path: Path
) -> None:
    joined = tmp_path / "joined"
    join = ("join:ignore=SIGTERM", f"join:leave={joined}", "join:spawn", "join:wait")
    options = ("-n", "2", "--min", "1", "--grace", "300ms")
    launch = run(*options, "act.py", "1:exit=1", *join, f"await={joined}")
    assert launch.finish() == 0, launch.errors
    assert launch.descendants() == []


def test_a_first_rank_that_fails_after_others_have_finished_makes_the_job_fail(
    run: Run, tmp_path: Path
) -> None:
    launch = run("-n", "2", "--min", "1", "act.py", "1:error=not saved", "1:wait")
    launch.wait_for("rank 0 on localhost has finished", "[1] waiting")
    (rank,) = (pid for pid in launch.descendants() if b"RANK=1" in environment(pid))
    os.kill(rank, signal.SIGKILL)
    assert launch.finish() == 128 + signal.SIGKILL
    assert (
        "rank 1 on localhost failed after others had finished: killed by SIGKILL" in launch.errors
    )
    assert "    not saved\n" in launch.errors


def test_after_the_last_restart_the_first_cause_is_reported(run: Run) -> None:
    options = ("-n", "2", "--min", "2", "--max-restarts", "1")
    actions = ("1:error=ValueError: the cause", "1:exit=3", "join:exit=4", "wait")
    launch = run(*options, "act.py", *actions)
    assert launch.finish() == 3
    assert "rank 1 on localhost failed after" in launch.errors
    assert "exit code 3: ValueError: the cause; the next one starts in 1 s" in launch.errors
    assert "it is not replaced, because --max-restarts is 1" in launch.errors
    assert "1 of at least 2 slots can be used; the job ends" in launch.errors
    assert "slot 1 on localhost failed first" in launch.errors
    assert "    ValueError: the cause\n" in launch.errors
    assert launch.descendants() == []


def test_above_the_minimum_a_job_goes_on_without_those_that_are_not_replaced(
    run: Run, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    options = ("-n", "2", "--min", "1", "--max-restarts", "0")
    launch = run(*options, "act.py", "1:exit=3", f"await={said}")
    launch.wait_for("it is not replaced, because --max-restarts is 0")
    said.touch()
    assert launch.finish() == 0, launch.errors


def test_when_no_process_is_left_all_start_again_with_ranks(run: Run, tmp_path: Path) -> None:
    program = 'test -e "$0/$RANK" || { touch "$0/$RANK"; kill -9 $$; }; echo $RANK-$WORLD_SIZE'
    launch = run("-n", "2", "--min", "2", "sh", "-c", program, tmp_path)
    assert launch.finish() == 0, launch.errors
    assert launch.errors.count("no member is left, so the job starts again") == 1
    assert sorted(launch.output.splitlines()) == ["[0] 0-2", "[1] 1-2"]


@pytest.mark.slow("elastic job that starts again and again")
def test_a_program_that_never_comes_to_train_ends_the_job(run: Run) -> None:
    launch = run("-n", "2", "--min", "1", "act.py", "error=SyntaxError", "exit=5")
    assert launch.finish() == 5
    assert "this happened again and again, before 5 s of training" in launch.errors
    assert launch.errors.count("no member is left, so the job starts again") in (1, 2)
    assert "    SyntaxError\n" in launch.errors


def test_what_a_failed_process_leaves_behind_ends_before_the_next_one_starts(
    run: Run, tmp_path: Path
) -> None:
    left, joined = tmp_path / "left", tmp_path / "joined"
    program = (
        'if [ "$RANK" = 1 ]; then sleep 607 > /dev/null 2>&1 & echo $! > "$0"; kill -9 $$; fi;'
        ' if [ -z "$RANK" ]; then kill -0 $(cat "$0") && echo alive || echo gone; touch "$1"; fi;'
        ' while ! [ -e "$1" ]; do sleep 0.05; done'
    )
    launch = run("-n", "2", "--min", "1", "sh", "-c", program, left, joined)
    assert launch.finish() == 0, launch.errors
    assert "[slot 1] gone\n" in launch.output


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_reach_every_process(run: Run, name: str) -> None:
    launch = run("-n", "2", "--min", "1", "act.py", f"last={name}", "wait")
    launch.wait_for("[0] waiting", "[1] waiting")
    launch.process.send_signal(signal.Signals[name])
    assert launch.finish() == 0, launch.errors
    for rank in (0, 1):
        assert f"[{rank}] goodbye after {name}\n" in launch.output
    assert f"{name} goes to every process; after 30 s" in launch.errors
    assert launch.descendants() == []


def test_ctrl_c_kills_after_the_grace(run: Run) -> None:
    options = ("-n", "2", "--min", "1", "--grace", "300ms")
    launch = run(*options, "act.py", "ignore=SIGINT", "spawn", "escape", "wait")
    launch.wait_for("[0] waiting", "[1] waiting")
    launch.process.send_signal(signal.SIGINT)
    assert launch.finish() == 128 + signal.SIGKILL
    assert "the job ended after SIGINT" in launch.errors
    assert launch.descendants() == []


def test_a_second_ctrl_c_kills_at_once(run: Run) -> None:
    launch = run("-n", "2", "--min", "1", "act.py", "ignore=SIGINT", "wait")
    launch.wait_for("[0] waiting", "[1] waiting")
    launch.process.send_signal(signal.SIGINT)
    launch.wait_for("SIGINT goes to every process")
    launch.process.send_signal(signal.SIGINT)
    assert launch.finish() == 128 + signal.SIGKILL
    assert launch.descendants() == []


def test_ctrl_c_during_the_back_off_ends_the_job(run: Run) -> None:
    launch = run("-n", "1", "--max", "1", "act.py", "exit=3")
    launch.wait_for("the next one starts in 2 s")
    launch.process.send_signal(signal.SIGINT)
    assert launch.finish() == 128 + signal.SIGINT
    assert launch.descendants() == []


@pytest.mark.slow("killed launcher")
def test_a_killed_launcher_leaves_nobody_behind(
    run: Run, wait_until: Wait, hosts: Callable[[str], Path]
) -> None:
    options = ("--max", "2", "--hosts-from", hosts("localhost:2"), "--grace", "300ms")
    launch = run(*options, "act.py", "ignore=SIGTERM", "spawn", "escape", "wait")
    launch.wait_for("[localhost:0] waiting", "[localhost:1] waiting")
    launch.process.kill()
    launch.process.wait()
    wait_until(lambda: launch.descendants() == [])


def test_a_killed_agent_takes_its_processes_along_and_comes_back(
    run: Run, wait_until: Wait, tmp_path: Path
) -> None:
    once = tmp_path / "once"
    program = '[ -e "$0" ] && exec echo again $RANK; echo ready; exec sleep 600'
    launch = run("-n", "2", "--min", "2", "sh", "-c", program, once)
    launch.wait_for("[0] ready", "[1] ready")
    once.touch()
    (agent,) = (pid for pid in launch.descendants() if b"cluster.launch.agent" in command(pid))
    os.kill(agent, signal.SIGKILL)
    assert launch.finish() == 0, launch.errors
    assert "localhost cannot be used: the connection to its agent was lost" in launch.errors
    assert "rank 1 on localhost failed after" in launch.errors
    assert "its host was lost" in launch.errors
    assert "[1] again 1\n" in launch.output
    assert launch.descendants() == []


@pytest.mark.slow("hosts of an elastic job")
def test_hosts_that_are_added_and_withdrawn_are_followed(
    run: Run, hosts: Callable[[str], Path]
) -> None:
    options = ("--min", "2", "--max", "3", "--hosts-from", hosts("# none yet\nlocalhost\n"))
    launch = run(*options, "act.py", "join:last=SIGTERM", "show=SLIPSTREAM_MEMBERS", "wait")
    launch.wait_for("1 of at least 2 slots can be used; the job waits for others, at most 600 s")
    hosts("localhost:2")
    launch.wait_for("[localhost:0] waiting", "[localhost:1] waiting", "2 processes started")
    hosts("localhost:5")
    launch.wait_for("[localhost:slot 2] waiting")
    assert "slot 2 on localhost starts, to join the job; 3 processes running" in launch.errors
    hosts("localhost:2")
    launch.wait_for("[localhost:slot 2] goodbye after SIGTERM")
    launch.wait_for("slot 2 on localhost has left: exit code 0; 2 processes running")
    assert "slot 2 on localhost gets SIGTERM, because its slot was withdrawn" in launch.errors
    launch.process.send_signal(signal.SIGINT)
    assert launch.finish() == 128 + signal.SIGINT
    assert "slot 3" not in launch.output + launch.errors


def test_a_withdrawn_process_that_does_not_end_is_killed_after_the_grace(
    run: Run, hosts: Callable[[str], Path]
) -> None:
    options = ("--max", "2", "--grace", "300ms", "--hosts-from", hosts("localhost:2"))
    launch = run(*options, "act.py", "1:ignore=SIGTERM", "wait")
    launch.wait_for("[localhost:0] waiting", "[localhost:1] waiting")
    hosts("localhost:1")
    launch.wait_for("rank 1 on localhost has left: killed by SIGKILL; 1 process running")
    launch.process.send_signal(signal.SIGINT)
    assert launch.finish() == 128 + signal.SIGINT


@pytest.mark.slow("elastic job that starts again and again")
def test_a_program_that_fails_keeps_the_last_hosts_and_is_reported_once(
    run: Run, hosts: Callable[[str], Path], tmp_path: Path
) -> None:
    counter = tmp_path / "count"
    program = hosts("localhost:2")
    options = ("--max", "2", "--hosts-from", program)
    launch = run(*options, "act.py", "last=SIGINT", "wait")
    launch.wait_for("[localhost:0] waiting", "[localhost:1] waiting")
    program.write_text(f"#!/bin/sh\necho run >> {counter}\necho no network >&2\nexit 7\n")
    launch.wait_for("hosts.sh failed: exit code 7: no network; the last list still holds")
    while len(counter.read_text().splitlines()) < 3:
        time.sleep(0.05)
    program.write_text("#!/bin/sh\nexit 0\n")
    launch.wait_for("hosts.sh failed: it printed no host; the last list still holds")
    program.write_text("#!/bin/sh\necho localhost:2\n")
    launch.wait_for("hosts.sh prints hosts again")
    launch.process.send_signal(signal.SIGINT)
    assert launch.finish() == 0, launch.errors
    assert launch.errors.count("hosts.sh failed") == 2
    assert "withdrawn" not in launch.errors


def test_too_few_slots_end_the_job_after_the_wait(run: Run, hosts: Callable[[str], Path]) -> None:
    options = ("--min", "2", "--max", "2", "--wait", "1500ms")
    launch = run(*options, "--hosts-from", hosts("localhost:1"), "act.py")
    assert launch.finish() == 1
    assert "hosts.sh failed first" in launch.errors
    assert "1 of at least 2 slots can be used" in launch.errors
    assert launch.output == ""


def test_events_are_json_lines_with_slots(run: Run, tmp_path: Path) -> None:
    joined = tmp_path / "joined"
    actions = ("1:exit=4", "join:print=hello", f"join:leave={joined}", f"await={joined}")
    launch = run("-n", "2", "--min", "1", "--json", "act.py", *actions)
    assert launch.finish() == 0
    events = [json.loads(line) for line in launch.output.splitlines()]
    assert all(each.pop("time") for each in events)
    started = [(each["slot"], each["rank"]) for each in events if each["event"] == "started"]
    assert sorted(started[:2]) == [(0, 0), (1, 1)]
    assert started[2] == (1, None)
    hello = {"event": "line", "slot": 1, "rank": None, "stream": "stdout", "text": "hello"}
    assert hello in events
    ended = {"event": "exited", "slot": 1, "rank": 1, "host": "localhost", "status": 4}
    assert ended in events
    counts = [each["count"] for each in events if each["event"] == "running"]
    assert counts[:3] == [2, 1, 2]
    assert events[-1] == {"event": "finished", "failure": None}


def test_a_job_without_hosts_ends_when_its_time_is_over(run: Run, tmp_path: Path) -> None:
    """No process and no agent is left whose end would wake the launcher."""
    program = tmp_path / "hosts.sh"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    began = time.monotonic()
    launch = run("--hosts-from", program, "--max", "2", "--wait", "1s", "--grace", "300s", "act.py")
    assert launch.finish() == 1
    assert time.monotonic() - began < 60
    assert "exit code 3: no message" in launch.errors


def test_what_processes_write_lies_in_files_by_rank_and_by_slot(run: Run, tmp_path: Path) -> None:
    joined, folder = tmp_path / "joined", tmp_path / "logs"
    join = ("join:print=joined", f"join:leave={joined}")
    options = ("-n", "2", "--min", "1", "--output-filename", folder)
    launch = run(*options, "act.py", "1:error=last", "1:exit=4", *join, f"await={joined}")
    assert launch.finish() == 0, launch.errors
    assert sorted(path.name for path in folder.iterdir()) == ["rank.0", "rank.1", "slot.1"]
    assert (folder / "rank.1" / "stderr").read_text() == "last\n"
    assert (folder / "slot.1" / "stdout").read_text() == "joined\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-n", "2", "--min", "3", "x"), "--min is 3; allowed: 1 to 2, the slots of the hosts"),
        (("--min", "4", "--max", "2", "x"), "--min is 4; allowed: 1 to 2, which is --max"),
        (("--min", "2", "x"), "none of --max, -n and -H is given; say --max 4"),
        (("-np", "3", "--max", "2", "x"), "-np is 3; allowed: at most --max, which is 2"),
        (("--hosts-from", "act.py", "x"), "--hosts-from is given without --max"),
        (("--hosts-from", "act.py", "--max", "2", "x"), "--hosts-from is 'act.py', which is no"),
        (("--hosts-from", "a", "--max", "2", "-H", "b", "x"), "both --hosts-from and -H are given"),
        (("-n", "2", "--max-restarts", "2", "x"), "--max-restarts is for elastic jobs"),
        (("-n", "2", "--max", "2", "--tty", "x"), "--tty needs a rank 0 that stays"),
        (("-n", "2", "--max", "2", "--env", "RANK=1", "x"), "RANK is chosen as '1'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    launch = run(*arguments)
    assert launch.finish() == 2
    (line,) = launch.errors.splitlines()
    assert line.startswith("slipstream: ")
    assert message in line


def command(pid: int) -> bytes:
    """Return the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def environment(pid: int) -> list[bytes]:
    """Return the environment of a process."""
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def process_of(output: str, place: str) -> int:
    """Return the number of the process that has said that it has this place."""
    return int(re.findall(rf"{place}, process (\d+)", output)[-1])


@pytest.mark.slow("hosts of an elastic job")
def test_training_goes_on_in_the_same_processes_and_the_next_one_joins(
    run: Run, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    launch = run("-n", "3", "--min", "2", "elastic_train.py", stop, "late")
    launch.wait_for("[0] rank 0 of 3", "[1] rank 1 of 3", "[2] rank 2 of 3")
    before = process_of(launch.output, "rank 0 of 3")
    os.kill(process_of(launch.output, "rank 1 of 3"), signal.SIGKILL)
    launch.wait_for("rank 0 of 2", "rank 1 of 2", "[slot 1] rank 2 of 3", "3 members")
    assert process_of(launch.output, "rank 0 of 2") == before
    stop.touch()
    assert launch.finish() == 0, launch.errors
    assert launch.output.count("trained as rank") == 3
    assert "[slot 1] trained as rank 2 of 3\n" in launch.output
    assert "because the training is over" not in launch.errors


@pytest.mark.slow("elastic job that starts again and again")
def test_when_only_processes_that_wait_are_left_all_start_again(run: Run, tmp_path: Path) -> None:
    """Rank 0 is stopped before rank 1 is killed, so that nobody admits the next process."""
    stop = tmp_path / "stop"
    launch = run("-n", "2", "--min", "1", "elastic_train.py", stop)
    launch.wait_for("[0] rank 0 of 2", "[1] rank 1 of 2")
    last = process_of(launch.output, "rank 0 of 2")
    os.kill(last, signal.SIGSTOP)
    os.kill(process_of(launch.output, "rank 1 of 2"), signal.SIGKILL)
    launch.wait_for("slot 1 on localhost starts, to join the job")
    os.kill(last, signal.SIGKILL)
    launch.wait_for("it waits to join, and no member is left", "so the job starts again")
    launch.wait_for("2 processes started; 1 to 2 may take part")
    stop.touch()
    assert launch.finish() == 0, launch.errors
    assert "[1] trained as rank 1 of 2\n" in launch.output


@pytest.mark.slow("hosts of an elastic job")
def test_a_withdrawn_process_leaves_at_its_next_commit(
    run: Run, hosts: Callable[[str], Path], tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    options = ("--max", "3", "--hosts-from", hosts("localhost:3"))
    launch = run(*options, "elastic_train.py", stop)
    launch.wait_for("rank 0 of 3", "rank 1 of 3", "rank 2 of 3")
    hosts("localhost:2")
    launch.wait_for("rank 0 of 2", "rank 1 of 2", "has left: exit code 143; 2 processes running")
    hosts("localhost:3")
    launch.wait_for("[localhost:slot 2] rank 2 of 3", "slot 2 on localhost has joined; 3 members")
    stop.touch()
    assert launch.finish() == 0, launch.errors
    assert launch.output.count("trained as rank") == 3


@pytest.mark.slow("processes of an elastic job that are stopped")
def test_a_stopped_process_that_the_others_have_left_behind_does_not_hold_up_the_end(
    run: Run, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    options = ("-n", "3", "--min", "1", "--grace", "300ms")
    launch = run(*options, "elastic_train.py", stop, environ={"SLIPSTREAM_PEER_TIMEOUT": "1"})
    launch.wait_for("rank 0 of 3", "rank 1 of 3", "rank 2 of 3")
    os.kill(process_of(launch.output, "rank 2 of 3"), signal.SIGSTOP)
    launch.wait_for("rank 0 of 2", "rank 1 of 2")
    stop.touch()
    assert launch.finish() == 0, launch.errors
    assert "rank 2 on localhost gets SIGTERM, because the training is over" in launch.errors
    assert launch.descendants() == []


@pytest.mark.slow("processes of an elastic job that are stopped")
def test_a_process_that_waits_to_join_again_is_no_member(run: Run, tmp_path: Path) -> None:
    """The others die before they admit it, so nobody ever would."""
    stop, hold = tmp_path / "stop", tmp_path / "hold"
    options = ("-n", "3", "--min", "1", "elastic_train.py", stop, f"hold={hold}")
    launch = run(*options, environ={"SLIPSTREAM_PEER_TIMEOUT": "1"})
    launch.wait_for("rank 0 of 3", "rank 1 of 3", "rank 2 of 3")
    last = process_of(launch.output, "rank 2 of 3")
    os.kill(last, signal.SIGSTOP)
    launch.wait_for("rank 0 of 2", "rank 1 of 2")
    hold.touch()
    launch.wait_for("holds its commits")
    os.kill(last, signal.SIGCONT)
    launch.wait_for("this process joins the job again")
    for rank in (0, 1):
        os.kill(process_of(launch.output, f"rank {rank} of 2"), signal.SIGKILL)
    launch.wait_for("it waits to join, and no member is left", "so the job starts again")
    hold.unlink()
    launch.wait_for("3 processes started; 1 to 3 may take part")
    stop.touch()
    assert launch.finish() == 0, launch.errors


@pytest.mark.slow("processes of an elastic job that are stopped")
def test_another_host_takes_the_place_of_one_whose_agent_does_not_answer(
    run: Run, hosts: Callable[[str], Path], tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    options = ("--max", "2", "--grace", "300ms", "--hosts-from", hosts("localhost:1\n127.0.0.1:1"))
    launch = run(*options, "elastic_train.py", stop)
    launch.wait_for("rank 0 of 2", "rank 1 of 2")
    agent = parent_of(process_of(launch.output, r"\[127.0.0.1:\d\] +rank \d of 2"))
    os.kill(agent, signal.SIGSTOP)
    hosts("localhost:1\n[::1]:1")
    launch.wait_for("slot 2 on ::1 has joined; 2 members")
    assert "127.0.0.1 cannot be used: its agent has not ended the process of" in launch.errors
    stop.touch()
    assert launch.finish() == 0, launch.errors
    assert launch.descendants() == []
