"""The shell on a machine: commands share it, leave codes and outputs, and outlive their client."""

from collections.abc import Callable

import pytest
from cluster_hosts import Hosts
from engine_contract import PYTHON
from host_boot import HOME
from waiting import wait_until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
]

PROLOGUE = """\
import sys, time
from pathlib import Path
from slipstream.cluster.groups import machine_files as files
from slipstream.cluster.groups.machine_shell import MachineShell
from slipstream.cluster.engines.ssh_host import SshHost
host = SshHost(name="host1", login="host1")
shell = MachineShell(host, "lab")
def run(text, **options):
    command = shell.start(text)
    code = shell.wait(command, **options)
    return code, shell.output(command)
def refused(call):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
"""

Client = Callable[[str], str]


@pytest.fixture
def client(hosts: Hosts) -> Client:
    """Return a function that runs a program at the desk and returns its output."""
    return lambda program: hosts.desk.output(PYTHON, "-c", PROLOGUE + program)


def test_commands_share_folder_and_variables_and_leave_codes(client: Client) -> None:
    program = """\
print(run("mkdir -p work; cd work; export WORD='two words'"))
print(run("pwd; echo $WORD"))
print(run("echo wrong >&2; false"))
print(run("echo (")[0], run("cat")[0])
print(run("exit 7"), run("pwd"))
"""
    assert client(program).splitlines() == [
        "(0, '')",
        f"(0, '{HOME}/work\\ntwo words\\n')",
        "(1, 'wrong\\n')",
        "2 0",
        f"(7, '') (0, '{HOME}\\n')",  # another shell has taken the place of the one that ended
    ]


def test_output_is_shown_as_it_comes_and_none_is_lost(client: Client) -> None:
    program = """\
parts = []
def show(text):
    parts.append(text)
    if len(parts) == 1:
        files.write(host, "go", "")
text = "echo first; until test -e go; do sleep 0.05; done; seq 500; printf end"
code, output = run(text, show=show)
print(code, parts[0] == "first\\n", "".join(parts) == output, len(output.splitlines()))
"""
    assert client(program) == "0 True True 502\n"


def test_an_interrupted_command_ends_and_those_behind_it_run(client: Client) -> None:
    program = """\
first, second = shell.start("sleep 1000"), shell.start("echo behind it")
refused(lambda: shell.wait(first, seconds=0.5))
shell.interrupt()
print(shell.wait(first), shell.wait(second), shell.output(second), end="")
"""
    timeout, ended = client(program).splitlines()
    assert timeout.startswith("PeerTimeoutError host1: command ")
    assert "goes on after 0.5 s" in timeout
    assert ended == "130 0 behind it"


def test_a_command_outlives_its_client(hosts: Hosts, client: Client) -> None:
    text = "until test -e finish; do sleep 0.05; done; echo finished"
    number = client(f"print(shell.start({text!r}).number)").strip()
    hosts.desk.output("pkill", "ssh")  # the connection to the host
    hosts["host1"].write(f"{HOME}/finish", "")
    folder = hosts["host1"].path(f"{HOME}/.slipstream/groups/lab")
    wait_until((folder / f"{number}.status").exists)
    assert (folder / f"{number}.output").read_text() == "finished\n"
    assert client("print(run('echo next'))") == "(0, 'next\\n')\n"


def test_files_are_added_to_those_that_are_there(client: Client) -> None:
    program = """\
Path("folder/inner").mkdir(parents=True, exist_ok=True)
Path("folder/inner/file").write_text("text")
host.run("mkdir -p folder", what="making a folder")
files.write(host, "folder/other", "kept")
files.put(host, Path("folder"))
print(files.read(host, "~/folder/inner/file"), files.read(host, "folder/other"))
files.put(host, Path("folder/inner/file"), "folder")
files.get(host, "folder/file", Path("fetched"))
print(Path("fetched").read_text(), files.exists(host, "folder"), files.exists(host, "nothing"))
files.wait_for_file(host, "folder/file", 10)
refused(lambda: files.wait_for_file(host, "nothing", 0.3))
refused(lambda: files.put(host, Path("nothing")))
refused(lambda: files.put(host, Path("fetched"), "no/such/folder"))
"""
    lines = client(program).splitlines()
    assert lines[:2] == ["text kept", "text True False"]
    expected = (
        "PeerTimeoutError host1 has no file nothing after 0.3 s",
        "UsageError nothing does not exist, so it cannot be copied to host1",
        "CommandFailedError host1: copying fetched failed",
    )
    assert all(line.startswith(start) for line, start in zip(lines[2:], expected, strict=True))


def test_a_shell_that_a_reboot_has_ended_is_named(hosts: Hosts, client: Client) -> None:
    number = client("print(shell.start('sleep 1000').number)").strip()
    host = hosts["host1"]
    host.kill()
    host.boot()
    program = f"""\
from slipstream.cluster.groups.machine_shell import ShellCommand
folder = {HOME!r} + "/.slipstream/groups/lab"
refused(lambda: shell.wait(ShellCommand(number={number}, folder=folder)))
print(run("echo again"))
"""
    refused, again = client(program).splitlines()
    assert f"the shell has ended before command {number}" in refused
    assert again == "(0, 'again\\n')"
