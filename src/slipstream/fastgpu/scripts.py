"""The program `python -m slipstream.fastgpu`: FastGPU's commands, and scripts that import it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import slipstream.fastgpu as package
from slipstream.errors import ConfigError, SlipstreamError, UsageError
from slipstream.fastgpu import fastgpu_globals


def run_script(path: str, arguments: list[str]) -> None:
    """Run a script that imports fastgpu or ncluster.

    Args:
        path: Path of the script.
        arguments: Arguments of the script.
    """
    for name in ("fastgpu", "ncluster"):
        sys.modules[name] = package
        sys.modules[f"{name}.{name}_globals"] = fastgpu_globals
    package.ncluster_globals = fastgpu_globals  # pyright: ignore[reportAttributeAccessIssue]
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")


def main() -> None:
    """Run a command or a script; print an error of Slipstream as one line."""
    arguments = sys.argv[1:]
    try:
        if arguments and arguments[0].endswith(".py"):
            run_script(arguments[0], arguments[1:])
        else:
            from slipstream.cli.fastgpu import app

            app(arguments if arguments[:1] != ["help"] else ["--help"], prog_name="fastgpu")
    except SlipstreamError as error:
        print(f"fastgpu: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, (ConfigError, UsageError)) else 1)
