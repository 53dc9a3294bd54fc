"""Commands in the shells of several machines at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from slipstream.cluster.engines.ssh_host import SshHost
from slipstream.cluster.groups.machine_group import NUM_THREADS, MachineGroup

# Receives the name of a machine and some lines of its output.
ShowLines = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """A command that a machine has begun.

    Args:
        number: Number of the command in the machine's shell.
        exit_code: Exit code, or None if it is not waited for.
        output: Output, unless it was shown or nobody waited for its end.
    """

    number: int
    exit_code: int | None
    output: str = ""


def run_on(
    group: MachineGroup,
    hosts: Sequence[SshHost],
    command: str,
    *,
    wait: bool = True,
    show: ShowLines | None = None,
) -> list[CommandResult]:
    """Run a command in the group's shell on several machines at the same time.

    Args:
        group: Group of the machines.
        hosts: Machines.
        command: Lines for bash.
        wait: Whether to wait for its end (default True).
        show: Function that gets the output as it comes (default None).
    """

    def run(host: SshHost) -> CommandResult:
        shell = group.shell(host)
        begun = shell.start(command)
        if not wait:
            return CommandResult(number=begun.number, exit_code=None)
        if show is not None:
            code = shell.wait(begun, show=partial(show, host.name))
            return CommandResult(number=begun.number, exit_code=code)
        code = shell.wait(begun)
        return CommandResult(number=begun.number, exit_code=code, output=shell.output(begun))

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(run, hosts))
