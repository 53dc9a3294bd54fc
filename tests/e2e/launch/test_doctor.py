"""`slipstream doctor` as a user sees it."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

DOCTOR = (Path(sys.executable).with_name("slipstream"), "doctor")


def test_everything_fits_on_a_screen_of_80_columns() -> None:
    environ = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(DOCTOR, env=environ, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(len(line) for line in lines) <= 80
    for name in (
        "Python",
        "processor",
        "interface",
        "GPU",
        "core",
        "torch",
        "ssh",
        "srun",
        "backend",
    ):
        assert any(line[3:].startswith(name) for line in lines), name


def on_terminal(*arguments: str, **environ: str) -> str:
    """Return everything that the doctor sends to a terminal of 80 columns."""
    controller, terminal = pty.openpty()
    subprocess.run(["stty", "rows", "40", "cols", "80"], stdin=terminal, check=True)
    plain = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")
    }
    process = subprocess.Popen(
        (*DOCTOR, *arguments),
        env={**plain, "TERM": "xterm-256color", **environ},
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(controller, 65536)
        except OSError:  # Linux's way of saying that the last user of the terminal is gone
            break
    os.close(controller)
    process.wait()
    return shown.decode()


def test_on_a_terminal_the_state_of_each_finding_has_a_colour() -> None:
    shown = on_terminal(SLIPSTREAM_STREAMS="many")
    assert "\x1b[32mok\x1b[0m Python" in shown
    assert "\x1b[1;31m!!\x1b[0m settings" in shown
    assert "\x1b[2m -\x1b[0m mxnet" in shown


@pytest.mark.slow("doctor on this host")
@pytest.mark.parametrize("arguments", [(), ("--algorithms",)])
def test_colours_can_be_refused(arguments: tuple[str, ...]) -> None:
    assert "\x1b[" in on_terminal(*arguments)
    assert "\x1b[" not in on_terminal(*arguments, NO_COLOR="1")


def test_the_findings_are_there_as_json_for_programs() -> None:
    found = json.loads(on_terminal("--json"))
    assert {"topic", "name", "state", "text", "remedy"} == set(found[0])
    assert {"Python", "core", "torch", "srun"} <= {finding["name"] for finding in found}


@pytest.mark.slow("doctor on this host")
def test_the_exit_code_says_whether_something_is_wrong() -> None:
    done = subprocess.run((*DOCTOR, "--json"), capture_output=True, text=True, check=False)
    states = {finding["state"] for finding in json.loads(done.stdout)}
    assert done.returncode == int("wrong" in states)
    bad = {**os.environ, "SLIPSTREAM_STREAMS": "many"}
    assert subprocess.run(DOCTOR, env=bad, capture_output=True, check=False).returncode == 1


def test_the_rules_by_which_algorithms_are_chosen_can_be_shown() -> None:
    done = subprocess.run((*DOCTOR, "--algorithms"), capture_output=True, text=True, check=True)
    for name in ("allreduce", "ring", "recursive_doubling", "any size", "ranks"):
        assert name in done.stdout, name
