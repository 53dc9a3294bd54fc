"""Launcher with horovodrun's options: `python -m slipstream.horovod.run -np 4 python train.py`

The launcher translates the options into options of `slipstream run`, and then replaces itself by
that command. A warning names options that have no effect in Slipstream; options for features that
do not exist yet end the program.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from slipstream.errors import UsageError
from slipstream.settings.variables import variables

# Options that `slipstream run` has under the same name.
_PASSED_ON = (
    *("--num-proc", "--hosts", "--hostfile", "--ssh-port", "--ssh-identity-file"),
    "--output-filename",
)

# Options for elastic jobs: option, type, older name, and option of `slipstream run`.
_ELASTIC = (
    ("--min-num-proc", int, "--min-np", "--min"),
    ("--max-num-proc", int, "--max-np", "--max"),
    ("--host-discovery-script", str, None, "--hosts-from"),
    ("--slots-per-host", int, None, "--ranks-per-host"),
    ("--reset-limit", int, None, "--max-changes"),
)
_MOST_PROCESSES = 1_000_000  # largest number of processes of a job without --max-num-proc
_START_SECONDS = 30.0  # time for the start of the hosts, besides --elastic-timeout

# Options with a value: option, type, and variable that it sets on every rank.
_VARIABLES = (
    ("--fusion-threshold-mb", int, "HOROVOD_FUSION_THRESHOLD"),
    ("--cycle-time-ms", float, "HOROVOD_CYCLE_TIME"),
    ("--cache-capacity", int, "HOROVOD_CACHE_CAPACITY"),
    ("--timeline-filename", str, "HOROVOD_TIMELINE"),
    ("--stall-check-warning-time-seconds", float, "HOROVOD_STALL_CHECK_TIME_SECONDS"),
    ("--stall-check-shutdown-time-seconds", float, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"),
    ("--start-timeout", float, variables()["connect_timeout_seconds"].name),
    ("--gloo-timeout-seconds", float, variables()["connect_timeout_seconds"].name),
    ("--network-interfaces", str, variables()["iface"].name),
    ("--network-interface", str, variables()["iface"].name),
)

_BUILD = """\
Slipstream, with Horovod's API over an engine of its own:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers and Tensor Operations:
    [X] Slipstream
    [ ] MPI
    [ ] Gloo
    [ ] NCCL
    [ ] DDL
    [ ] CCL
"""

# Options without a value, and the variable that each sets to 1 on every rank.
_FLAGS = (
    ("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE"),
    ("--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES"),
)

_WITHOUT_EFFECT = (
    *("--gloo", "--mpi", "--tcp", "--disable-cache", "--verbose", "--stall-check"),
    *("--hierarchical-allreduce", "--no-hierarchical-allreduce"),
    *("--hierarchical-allgather", "--no-hierarchical-allgather"),
    *("--torus-allreduce", "--no-torus-allreduce", "--autotune", "--no-autotune"),
    *("--no-timeline-mark-cycles", "--mpi-threads-disable", "--no-mpi-threads-disable"),
    *("--log-with-timestamp", "--log-without-timestamp", "--prefix-output-with-timestamp"),
    *("--log-hide-timestamp", "--no-log-hide-timestamp", "--jsrun"),
)
_SHORT = {"--prefix-output-with-timestamp": ("-prefix-timestamp",)}
_WITHOUT_EFFECT_VALUES = (
    *("--autotune-log-file", "--autotune-warmup-samples", "--autotune-steps-per-sample"),
    *("--autotune-bayes-opt-max-samples", "--autotune-gaussian-process-noise"),
    *("--mpi-args", "--binding-args", "--num-nccl-streams", "--thread-affinity", "--log-level"),
)
_NOT_SUPPORTED = ("--config-file",)


def main(arguments: Sequence[str]) -> None:
    """Replace this process by `slipstream run`.

    Args:
        arguments: Command line in horovodrun's form.
    """
    try:
        command, without_effect = command_for(arguments)
    except UsageError as error:
        sys.exit(f"slipstream.horovod.run: {error}")
    if without_effect:
        print(
            f"slipstream.horovod.run: options without effect here: {', '.join(without_effect)}",
            file=sys.stderr,
        )
    os.execv(sys.executable, [sys.executable, "-m", "slipstream.cli", "run", *command])


def command_for(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments for `slipstream run`, and the horovodrun options without effect there.

    Args:
        arguments: Command line in horovodrun's form.

    Raises:
        UsageError: An option is not supported, or there is no command.
    """
    values = vars(parser().parse_args(list(arguments)))
    ignored_options = (*_WITHOUT_EFFECT, *_WITHOUT_EFFECT_VALUES)
    without_effect = [option for option in ignored_options if values[_key(option)]]
    return command_of(values), without_effect


def is_elastic(values: Mapping[str, Any]) -> bool:
    """Return whether options ask for an elastic job.

    Args:
        values: Values of the options, as `parser` has read them.
    """
    elastic = ("host_discovery_script", "min_num_proc", "max_num_proc")
    return any(values[name] is not None for name in elastic)


def variables_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that options set on every rank."""
    chosen: dict[str, str] = {}
    for option, kind, name in _VARIABLES:
        value = values[_key(option)]
        if value is not None:
            scaled = value << 20 if option == "--fusion-threshold-mb" else value
            exact = "=" if option.startswith("--network-interface") else ""
            chosen[name] = exact + scaled if kind is str else format(scaled, ".12g")
    for option, name in _FLAGS:
        if values[_key(option)]:
            chosen[name] = "1"
    return chosen


def command_of(values: Mapping[str, Any], poll_seconds: float | None = None) -> list[str]:
    """Return the arguments for `slipstream run`.

    Args:
        values: Values of the options, as `parser` has read them.
        poll_seconds: Time in seconds between two runs of the script that prints hosts (default: as
            `slipstream run` has it).

    Raises:
        UsageError: An option is not supported, or there is no command.
    """
    for option in _NOT_SUPPORTED:
        if values[_key(option)] is not None:
            raise UsageError(f"{option} is not supported yet; docs/horovod.md lists what is")
    if not values["command"]:
        raise UsageError("the command is missing; an example: -np 2 python train.py")
    command: list[str] = []
    elastic = is_elastic(values)
    for option in _PASSED_ON:
        # In an elastic job, all slots of the hosts may be used.
        if values[_key(option)] is not None and not (elastic and option == "--num-proc"):
            command += [option, str(values[_key(option)])]
    if elastic:
        command += _elastic_options(values, poll_seconds)
    for name, text in variables_of(values).items():
        command += ["--env", f"{name}={text}"]
    return [*command, "--", *values["command"]]


def _elastic_options(values: Mapping[str, Any], poll_seconds: float | None) -> list[str]:
    """Return the options of `slipstream run` for an elastic job by Horovod's rules."""
    given = dict(values)
    given["min_num_proc"] = values["min_num_proc"] or values["num_proc"] or 1
    if values["host_discovery_script"] is not None and values["max_num_proc"] is None:
        given["max_num_proc"] = _MOST_PROCESSES
    options = ["--whole-hosts"]
    for option, _, _, ours in _ELASTIC:
        if given[_key(option)] is not None:
            options += [ours, str(given[_key(option)])]
    seconds = values["elastic_timeout"]
    if seconds is not None:
        options += ["--wait", format(seconds + _START_SECONDS, ".12g")]
    if values["cooldown_range"] is not None:
        options += ["--cooldown", ",".join(str(each) for each in values["cooldown_range"])]
    if poll_seconds is not None:
        options += ["--poll", format(poll_seconds, ".12g")]
    return options


class _PrintBuild(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        print(_BUILD)
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """Return a parser of horovodrun's options."""
    made = argparse.ArgumentParser(
        prog="python -m slipstream.horovod.run",
        description="Start the ranks of a program, with horovodrun's options.",
        epilog="example: python -m slipstream.horovod.run -np 4 -H a:2,b:2 python train.py",
        allow_abbrev=False,
    )
    add = made.add_argument
    add("-np", "--num-proc", type=int, help="number of processes; in an elastic job the least")
    add("-H", "--hosts", help="hosts and their numbers of processes, such as a:2,b:2")
    add("-hostfile", "--hostfile", help="file of hosts, one per line, such as: a slots=2")
    add("-p", "--ssh-port", type=int, help="port of sshd on the hosts")
    add("-i", "--ssh-identity-file", help="private key file for ssh")
    add("--output-filename", help="folder for files with the output of each rank")
    add("-v", "--version", action="version", version=f"slipstream {version('slipstream')}")
    add("-cb", "--check-build", action=_PrintBuild, nargs=0, help="print the available features")
    for option, kind, older, ours in _ELASTIC:
        names = (option,) if older is None else (option, older)
        add(*names, dest=_key(option), type=kind, help=f"{ours} of `slipstream run`")
    add("--elastic-timeout", type=float, help="longest time in seconds with too few processes")
    add(
        "--blacklist-cooldown-range",
        dest="cooldown_range",
        type=float,
        nargs=2,
        help="shortest and longest time in seconds that a failed host stays out",
    )
    for option, kind, name in _VARIABLES:
        add(option, type=kind, help=f"value of the variable {name} on every rank")
    for option, name in _FLAGS:
        add(option, action="store_true", help=f"set the variable {name} to 1 on every rank")
    for option in _WITHOUT_EFFECT:
        add(option, *_SHORT.get(option, ()), action="store_true", help=argparse.SUPPRESS)
    for option in (*_WITHOUT_EFFECT_VALUES, *_NOT_SUPPORTED):
        add(option, help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, help="program to run and its arguments")
    return made


def _key(option: str) -> str:
    """Return the name under which argparse stores an option."""
    return option.lstrip("-").replace("-", "_")


if __name__ == "__main__":
    main(sys.argv[1:])
