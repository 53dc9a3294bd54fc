"""horovodrun's functions, for scripts that call them: read the options and run an elastic job."""

from __future__ import annotations

import argparse
import subprocess
import sys

from slipstream.errors import UsageError
from slipstream.horovod.run import command_of, is_elastic, parser
from slipstream.horovod.runner.elastic import driver
from slipstream.horovod.runner.elastic.constants import RESET_LIMIT_EXCEEDED_MESSAGE

_TOO_MANY_CHANGES = 3  # exit code of `slipstream run` if --max-changes was exceeded


def parse_args() -> argparse.Namespace:
    """Read the options of horovodrun from the command line of this process."""
    return parser().parse_args()


def _run_elastic(args: argparse.Namespace) -> None:  # pyright: ignore[reportUnusedFunction]
    """Run an elastic job, and block until it has ended.

    Args:
        args: Options that parse_args() has read.

    Raises:
        UsageError: The options lack the hosts or the limits of an elastic job.
        RuntimeError: The job has failed.
    """
    values = vars(args)
    if not is_elastic(values):
        raise UsageError(
            "the job is not elastic; give --min-num-proc, --max-num-proc or --host-discovery-script"
        )
    if values["elastic_timeout"] is None:
        values = values | {"elastic_timeout": driver.ELASTIC_TIMEOUT_SECS}
    poll_seconds = None
    if values["host_discovery_script"] is not None:
        poll_seconds = driver.DISCOVER_HOSTS_FREQUENCY_SECS
    command = command_of(values, poll_seconds)
    ended = subprocess.run([sys.executable, "-m", "slipstream.cli", "run", *command], check=False)
    if ended.returncode == _TOO_MANY_CHANGES:
        raise RuntimeError(RESET_LIMIT_EXCEEDED_MESSAGE.format(values["reset_limit"]))
    if ended.returncode != 0:
        raise RuntimeError(
            "Horovod detected that one or more processes exited with non-zero status; the exit code"
            f" of the job is {ended.returncode}, and its output names the process"
        )
