"""`python -m slipstream.lab.backend NAME FILE SCRIPT ARGUMENTS` runs a script with a backend.

The backend NAME replaces the backend of every process group that the script makes with
`init_process_group`. If the script passes a backend to `new_group`, NAME replaces that one, too.
Rank 0 measures the seconds from its first process group to the end of the script, and writes them
to FILE. SCRIPT may also be `-m` and the name of a module.
"""

import atexit
import functools
import importlib
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def choose_backend(name: str, note_start: Callable[[int], None]) -> None:
    """Make torch.distributed use one backend, whichever backend the script names.

    Args:
        name: Name of the backend that is used, such as "gloo".
        note_start: Function that is called with the rank's number when the first process group is
            ready.
    """
    distributed: Any = importlib.import_module("torch.distributed")
    make_first, make_more = distributed.init_process_group, distributed.new_group

    @functools.wraps(make_first)
    def init_process_group(backend: object = None, *args: Any, **kwargs: Any) -> Any:
        result = make_first(name, *args, **kwargs)
        note_start(distributed.get_rank())
        return result

    @functools.wraps(make_more)
    def new_group(
        ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        return make_more(ranks, timeout, backend and name, *args, **kwargs)

    distributed.init_process_group = init_process_group
    distributed.new_group = new_group


def main(arguments: list[str]) -> None:
    """Run a script with a backend in this process; arguments are NAME FILE SCRIPT ARGUMENTS."""
    name, file, *command = arguments

    def note_start(rank: int) -> None:
        if rank == 0:
            atexit.register(_write_seconds, Path(file), time.monotonic())

    choose_backend(name, note_start)
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path[0] = str(Path(command[0]).resolve().parent)
        runpy.run_path(command[0], run_name="__main__")


def _write_seconds(file: Path, began: float) -> None:
    file.write_text(str(time.monotonic() - began))


if __name__ == "__main__":
    main(sys.argv[1:])
