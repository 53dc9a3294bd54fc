"""`slipstream run` on this host, with real processes."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slipstream.processor import num_gpus

pytestmark = pytest.mark.multiprocess

Run = Callable[..., Any]  # conftest.Launch is what it returns
Wait = Callable[[Callable[[], object]], None]
LIMIT_SECONDS = 60.0
SIZE = ("COLUMNS", "LINES")  # which readline sets where tests run without a terminal
SLIPSTREAM = Path(sys.executable).with_name("slipstream")


def test_ranks_meet_through_the_variables_they_get(run: Run, ranks: Path) -> None:
    launch = run("-n", "3", "meet.py")
    assert launch.finish() == 0, launch.errors
    assert "[0] met 0 1 2\n" in launch.output
    threads = max(1, len(os.sched_getaffinity(0)) // 3)
    for rank in range(3):
        line = f"[{rank}] rank {rank}/3 local {rank} from environment key 64 threads {threads}\n"
        assert line in launch.output
    assert launch.errors.count(f"OMP_NUM_THREADS={threads}") == 1


@pytest.mark.netns
@pytest.mark.parametrize("count", [1, 2])
def test_ranks_meet_on_a_host_without_ipv4(run: Run, count: int) -> None:
    only_v6 = 'ip link set lo up; ip addr del 127.0.0.1/8 dev lo; exec "$@"'
    before = ("unshare", "--net", "sh", "-c", only_v6, "sh")
    launch = run("-n", str(count), "meet.py", before=before)
    assert launch.finish() == 0, launch.errors
    assert f"[0] met {' '.join(map(str, range(count)))}\n" in launch.output


def test_two_jobs_at_once_do_not_meet_each_other(run: Run) -> None:
    launches = [run("-n", "2", "meet.py") for _ in range(2)]
    assert [launch.finish() for launch in launches] == [0, 0]


def test_modules_and_plain_programs_run_too(run: Run) -> None:
    launch = run("-n", "2", "-m", "act", "print=module")
    assert launch.finish() == 0, launch.errors
    assert "[1] module\n" in launch.output
    launch = run("-n", "2", "sh", "-c", "echo shell $RANK of $WORLD_SIZE")
    assert launch.finish() == 0, launch.errors
    assert "[1] shell 1 of 2\n" in launch.output


def test_every_rank_is_led_to_the_nccl_plugin(run: Run) -> None:
    say = "echo $NCCL_NET_PLUGIN $NCCL_NET $NCCL_SOCKET_IFNAME ${#SLIPSTREAM_JOB_KEY}; "
    say += "ls ${LD_LIBRARY_PATH%%:*}/libnccl-net-$NCCL_NET_PLUGIN.so"
    options = ("-n", "2", "--env", "SLIPSTREAM_IFACE=lo", "--env", "SLIPSTREAM_STREAMS=4")
    launch = run(*options, "--nccl-plugin", "sh", "-c", say)
    assert launch.finish() == 0, launch.errors
    for rank in (0, 1):
        assert f"[{rank}] slipstream Slipstream lo 64\n" in launch.output
    has_remark = "--nccl-plugin has no effect on this host" in launch.errors
    assert has_remark == (num_gpus() == 0)
    launch = run(*options, "sh", "-c", "echo ${NCCL_NET_PLUGIN-none}")
    assert launch.finish() == 0, launch.errors
    assert "[1] none\n" in launch.output


def test_what_ranks_write_lies_in_files_too(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    say = "echo out $RANK; echo err $RANK >&2"
    launch = run("-n", "11", "--output-filename", folder, "sh", "-c", say)
    assert launch.finish() == 0, launch.errors
    assert "out 3\n" in launch.output
    assert f"written: {folder}\n" in launch.errors
    assert sorted(path.name for path in folder.iterdir()) == [f"rank.{r:02}" for r in range(11)]
    assert (folder / "rank.03" / "stdout").read_text() == "out 3\n"
    assert (folder / "rank.10" / "stderr").read_text() == "err 10\n"
    (tmp_path / "file").touch()
    launch = run("-n", "1", "--output-filename", tmp_path / "file", "true")
    assert launch.finish() == 2
    assert "where no files can be created" in launch.errors


def test_a_folder_full_of_unlucky_names_does_no_harm(run: Run, tmp_path: Path) -> None:
    for name in ("json", "selectors", "slipstream", "signal"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('wrong module')")
    launch = run("-n", "1", "echo", "fine", cwd=tmp_path)
    assert launch.finish() == 0, launch.errors
    assert "[0] fine\n" in launch.output


def test_what_a_rank_leaves_behind_is_no_zombie_once_it_has_ended(run: Run) -> None:
    program = (
        "import pathlib, subprocess, time\n"
        "left = subprocess.check_output(['sh', '-c', 'sleep 0.2 & echo $!'], text=True)\n"
        "while pathlib.Path('/proc', left.strip()).exists(): time.sleep(0.02)\n"
        "print('it is gone')\n"
    )
    launch = run("-n", "1", sys.executable, "-c", program)
    launch.wait_for("[0] it is gone\n")
    assert launch.finish() == 0, launch.errors


def test_the_first_failure_ends_all_within_seconds_and_is_named(run: Run, wait_until: Wait) -> None:
    launch = run("-n", "3", "act.py", "error=last words", "1:exit=3", "spawn", "escape", "wait")
    assert launch.finish() == 3
    assert "rank 1 on localhost failed first" in launch.errors
    assert "exit code 3" in launch.errors
    assert "    last words\n" in launch.errors
    assert launch.descendants() == []
    assert time.monotonic() - launch.began_at < LIMIT_SECONDS / 2


def test_a_signal_that_ends_a_rank_is_named_and_becomes_the_exit_code(run: Run) -> None:
    launch = run("-n", "2", "act.py", "0:kill=SIGSEGV", "wait")
    assert launch.finish() == 128 + signal.SIGSEGV
    assert "rank 0 on localhost failed first" in launch.errors
    assert "killed by SIGSEGV" in launch.errors


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(run: Run) -> None:
    actions = ("0:ignore=SIGTERM", "0:print=deaf", "0:wait", "1:wait")
    launch = run("-n", "2", "--grace", "0.3", "act.py", *actions)
    launch.wait_for("[0] deaf", "[1] waiting")
    (other,) = (
        pid for pid in launch.descendants() if b"1:wait" in command(pid) and is_rank(pid, 1)
    )
    os.kill(other, signal.SIGKILL)
    assert launch.finish() == 128 + signal.SIGKILL
    assert "rank 1 on localhost failed first" in launch.errors
    assert launch.descendants() == []


def test_within_the_grace_a_rank_can_say_goodbye(run: Run) -> None:
    actions = ("last=SIGTERM", "print=ready", "0:wait", "1:wait")
    launch = run("-n", "2", "--grace", "30", "act.py", *actions)
    launch.wait_for("[0] waiting", "[1] waiting")
    (other,) = (pid for pid in launch.descendants() if is_rank(pid, 1))
    os.kill(other, signal.SIGKILL)
    assert launch.finish() == 128 + signal.SIGKILL
    assert "[0] goodbye after SIGTERM\n" in launch.output


@pytest.mark.slow("killed launcher")
def test_a_killed_launcher_leaves_nobody_behind(run: Run, wait_until: Wait) -> None:
    launch = run("-n", "2", "act.py", "ignore=SIGTERM", "spawn", "escape", "wait")
    launch.wait_for("[0] waiting", "[1] waiting")
    assert len(launch.descendants()) == 1 + 2 * 3
    launch.process.kill()
    launch.process.wait()
    wait_until(lambda: launch.descendants() == [])


def test_a_killed_agent_takes_its_ranks_along_and_is_reported(run: Run, wait_until: Wait) -> None:
    launch = run("-n", "2", "act.py", "wait")
    launch.wait_for("[0] waiting", "[1] waiting")
    (agent,) = (
        pid for pid in launch.descendants() if b"slipstream.cluster.launch.agent" in command(pid)
    )
    os.kill(agent, signal.SIGKILL)
    assert launch.finish() == 1
    assert "the connection to its agent was lost (killed by SIGKILL)" in launch.errors
    wait_until(lambda: launch.descendants() == [])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_reach_every_rank(run: Run, name: str) -> None:
    number = signal.Signals[name]
    launch = run("-n", "2", "act.py", f"last={name}", "wait")
    launch.wait_for("[0] waiting", "[1] waiting")
    launch.process.send_signal(number)
    assert launch.finish() == 0, launch.errors
    for rank in (0, 1):
        assert f"[{rank}] goodbye after {name}\n" in launch.output
    assert f"{name} goes to every rank" in launch.errors


def test_ctrl_c_ends_ranks_that_do_nothing_about_it(run: Run) -> None:
    launch = run("-n", "2", "act.py", "wait")
    launch.wait_for("[0] waiting", "[1] waiting")
    os.killpg(launch.process.pid, signal.SIGINT)  # as a terminal does
    assert launch.finish() == 128 + signal.SIGINT
    assert "ended after SIGINT" in launch.errors
    assert "last lines" not in launch.errors
    assert launch.descendants() == []


def test_a_second_ctrl_c_kills(run: Run) -> None:
    launch = run("-n", "2", "act.py", "ignore=SIGINT", "wait")
    launch.wait_for("[0] waiting", "[1] waiting")
    launch.process.send_signal(signal.SIGINT)
    launch.wait_for("SIGINT goes to every rank")
    launch.process.send_signal(signal.SIGINT)
    assert launch.finish() == 128 + signal.SIGKILL
    assert launch.descendants() == []


def test_sigusr1_reaches_the_rank_and_not_its_children(run: Run) -> None:
    launch = run("-n", "1", "act.py", "last=SIGUSR1", "spawn", "wait")
    launch.wait_for("[0] waiting")
    assert len(launch.descendants()) == 3
    launch.process.send_signal(signal.SIGUSR1)
    assert launch.finish() == 0, launch.errors
    assert "[0] goodbye after SIGUSR1\n" in launch.output
    assert launch.descendants() == []


def test_nohup_is_respected(run: Run) -> None:
    launch = run("-n", "1", "act.py", "last=SIGTERM", "wait", before=("nohup",))
    launch.wait_for("[0] waiting")
    launch.process.send_signal(signal.SIGHUP)
    launch.process.send_signal(signal.SIGTERM)
    assert launch.finish() == 0, launch.errors
    assert "SIGHUP" not in launch.errors


@pytest.mark.parametrize(
    "deafen",
    [
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})",
    ],
    ids=["ignored", "blocked"],
)
def test_a_parent_that_does_not_care_about_children_does_not_hide_their_ends(
    run: Run, deafen: str
) -> None:
    script = f"import os, signal, sys; {deafen}; os.execvp(sys.argv[1], sys.argv[1:])"
    before = (sys.executable, "-c", script)
    launch = run("-n", "2", "act.py", "1:exit=3", "wait", before=before)
    assert launch.finish() == 3
    assert "rank 1 on localhost failed first" in launch.errors
    launch = run("-n", "2", "act.py", "print=done", before=before)
    assert launch.finish() == 0, launch.errors


def test_lines_of_ranks_that_write_a_lot_at_once_stay_whole(run: Run) -> None:
    script = "import os; [print(os.environ['RANK'] * 999) for _ in range(500)]"
    launch = run("-n", "3", sys.executable, "-c", script)
    assert launch.finish() == 0, launch.errors
    lines = launch.output.splitlines()
    assert sorted(lines) == sorted(
        f"[{rank}] {str(rank) * 999}" for rank in range(3) for _ in range(500)
    )


def test_output_can_be_limited_to_rank_0_or_to_what_failed(run: Run) -> None:
    launch = run("-n", "2", "--show", "rank0", "act.py", "print=hello")
    assert launch.finish() == 0
    assert launch.output == "[0] hello\n"
    launch = run(
        "-n", "2", "--show", "failed", "act.py", "print=hello", "1:error=why", "1:exit=4", "wait"
    )
    assert launch.finish() == 4
    assert launch.output == ""
    assert launch.errors.endswith("    hello\n    why\n")


def test_a_progress_bar_in_a_log_leaves_its_last_state(run: Run) -> None:
    launch = run("-n", "2", "act.py", "progress=100")
    assert launch.finish() == 0
    bars = [line for line in launch.errors.splitlines() if "%" in line]
    assert sorted(bars) == ["[0] 100%", "[1] 100%"]


def test_events_are_json_lines(run: Run, tmp_path: Path) -> None:
    said = tmp_path / "said"
    rank0 = ("0:print=hello", f"0:leave={said}")
    rank1 = (f"1:await={said}", "1:error=why", "1:exit=4")
    launch = run("-n", "2", "--json", "act.py", *rank0, *rank1, "wait")
    assert launch.finish() == 4
    events = [json.loads(line) for line in launch.output.splitlines()]
    kinds = [event.pop("event") for event in events]
    times = [event.pop("time") for event in events]
    assert times == sorted(times)
    assert kinds.count("started") == 2
    assert kinds.count("exited") == 2
    assert {"rank": 0, "stream": "stdout", "text": "hello"} in events
    failure = events[-1]["failure"]
    assert (failure["rank"], failure["exit_code"], failure["last_lines"]) == (1, 4, ["why"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("act.py",), "neither -n nor -H"),
        (("-H", "a:0", "act.py"), "allowed: [user@]name"),
        (("-n", "1", "--env", "NO_SUCH_NAME", "act.py"), "not set here"),
        (("-n", "1", "--env", "WORLD_SIZE=4", "act.py"), "WORLD_SIZE is chosen as '4'"),
        (("-H", "elsewhere", "--tty", "act.py"), "--tty needs rank 0 on this host"),
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


def test_a_bad_setting_is_found_before_anything_starts(run: Run) -> None:
    launch = run("-n", "1", "act.py", "print=x", environ={"SLIPSTREAM_STREAMS": "many"})
    assert launch.finish() == 2
    assert launch.output == ""
    assert "SLIPSTREAM_STREAMS is 'many'; allowed: " in launch.errors


def test_a_program_that_does_not_exist_is_named(run: Run) -> None:
    launch = run("-n", "2", "no-such-program")
    assert launch.finish() == 1
    assert "cannot run 'no-such-program'" in launch.errors


def test_options_after_the_program_are_the_programs(run: Run) -> None:
    launch = run("-n", "1", "echo", "-n", "5", "--help", "--json")
    assert launch.finish() == 0
    assert launch.output == "[0] 5 --help --json\n"


def test_a_reader_that_goes_away_ends_the_job(run: Run, wait_until: Wait) -> None:
    launch = run("-n", "2", "yes", before=("sh", "-c", '"$@" | head -n 3', "sh"))
    assert launch.finish() == 0
    assert len(launch.output.splitlines()) == 3
    wait_until(lambda: launch.descendants() == [])
    assert "Traceback" not in launch.errors


def test_the_help_shows_how_it_is_used() -> None:
    environ = {**os.environ, "COLUMNS": "80"}
    shown = subprocess.run(
        [SLIPSTREAM, "run", "--help"], env=environ, capture_output=True, text=True, check=True
    )
    assert "slipstream run -H a:2,b:2 train.py" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_variables_are_handed_over(run: Run) -> None:
    launch = run("-n", "1", "--env", "A=1=2", "--env", "B", "env", environ={"B": "3"})
    assert launch.finish() == 0
    assert "[0] A=1=2\n" in launch.output
    assert "[0] B=3\n" in launch.output


def test_variables_that_the_launcher_would_set_can_be_chosen(run: Run) -> None:
    chosen = ("MASTER_ADDR=127.0.0.2", "MASTER_PORT=29876", f"SLIPSTREAM_JOB_KEY={'k' * 40}")
    options = [part for each in chosen for part in ("--env", each)]
    launch = run("-n", "2", *options, "env")
    assert launch.finish() == 0, launch.errors
    for rank in (0, 1):
        assert {f"[{rank}] {each}" for each in chosen} <= set(launch.output.splitlines())


def test_the_key_is_on_no_command_line(run: Run) -> None:
    launch = run("-n", "1", "act.py", "wait")
    launch.wait_for("[0] waiting")
    keys = [
        environment(pid)["SLIPSTREAM_JOB_KEY"] for pid in launch.descendants() if is_rank(pid, 0)
    ]
    pids = [launch.process.pid, *launch.descendants()]
    assert len(keys[0]) == 64
    assert not any(keys[0].encode() in command(pid) for pid in pids)


def test_rank_0_can_have_the_terminal(ranks: Path) -> None:
    probe = "import os, shutil; print('rank', os.environ['RANK'], shutil.get_terminal_size((9, 9)))"
    shown = on_terminal("-n", "2", "--tty", sys.executable, "-c", probe, cwd=ranks)
    assert "rank 0 os.terminal_size(columns=93, lines=30)\r\n" in shown
    assert "[0]" not in shown
    assert "rank 1" not in shown


def test_on_a_terminal_prefixes_have_colours_unless_refused(ranks: Path) -> None:
    arguments = ("-n", "2", "act.py", "print=hello")
    assert "\x1b[32m[1] \x1b[0mhello" in on_terminal(*arguments, cwd=ranks)
    assert "\x1b[" not in on_terminal("--no-color", *arguments, cwd=ranks)
    assert "\x1b[" not in on_terminal(*arguments, cwd=ranks, environ={"NO_COLOR": "1"})


def test_on_a_terminal_rank_0s_progress_bar_stays_below_other_lines(ranks: Path) -> None:
    redrawn = "\r\x1b[K[0] waiting\r\n[0] 40%"
    arguments = ("--no-color", "-n", "2", "act.py", "progress=40", "0:wait")
    shown = on_terminal(*arguments, cwd=ranks, end_at=(redrawn, "[1] 40%\r\n"))
    assert "\r\x1b[K[0] 40%" in shown
    assert redrawn in shown
    assert shown.count("[1]") == shown.count("[1] 40%\r\n")


def on_terminal(
    *arguments: str, cwd: Path, environ: dict[str, str] | None = None, end_at: Sequence[str] = ()
) -> str:
    """Run on a pseudo-terminal of 93 columns, and return everything that it was sent.

    The run ends by itself with success, or once it has shown all of `end_at`, by SIGTERM.
    """
    controller, terminal = pty.openpty()
    subprocess.run(["stty", "rows", "30", "cols", "93"], stdin=terminal, check=True)
    inherited = {key: value for key, value in os.environ.items() if key not in SIZE}
    process = subprocess.Popen(
        [SLIPSTREAM, "run", *arguments],
        env={**inherited, **(environ or {}), "TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=cwd,
        start_new_session=True,
    )
    os.close(terminal)
    shown, code = b"", 0
    while True:
        try:
            shown += os.read(controller, 65536)
        except OSError:  # Linux's way of saying that the last user of the terminal is gone
            break
        if end_at and all(text.encode() in shown for text in end_at):
            process.terminate()
            end_at = ()
            code = 128 + signal.SIGTERM
    os.close(controller)
    assert process.wait(LIMIT_SECONDS) == code, shown
    return shown.decode()


def command(pid: int) -> bytes:
    """Return the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def environment(pid: int) -> dict[str, str]:
    """Return the environment of a process."""
    items = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(item.split("=", 1) for item in items if "=" in item)


def is_rank(pid: int, rank: int) -> bool:
    """Return whether the process is a rank itself, and not a child of one or an agent."""
    return environment(pid).get("RANK") == str(rank) and b"time.sleep" not in command(pid)
