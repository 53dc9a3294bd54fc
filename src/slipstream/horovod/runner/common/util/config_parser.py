"""The variables that options of horovodrun set."""

from __future__ import annotations

import argparse
from collections.abc import MutableMapping

from slipstream.horovod.run import variables_of


def set_env_from_args(env: MutableMapping[str, str], args: argparse.Namespace) -> None:
    """Add the variables that options of horovodrun set to an environment.

    Args:
        env: Environment.
        args: Options that `slipstream.horovod.runner.launch.parse_args` has read.
    """
    env.update(variables_of(vars(args)))
