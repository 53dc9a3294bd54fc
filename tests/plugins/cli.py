"""The command line in this process, for cases that need no process of their own."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Generator
from dataclasses import dataclass

from slipstream import cli

WRONG_USAGE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command that ended: its exit code, and what it printed."""

    code: int
    stdout: str
    stderr: str


def in_process(*arguments: str) -> Done:
    """Run `slipstream` with these arguments as its program does, and return how it ended."""
    stdout, stderr = io.StringIO(), io.StringIO()
    code = 0
    with _argv(*arguments), contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Done(code=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def usage_error(*arguments: str) -> str:
    """Return the one line that `slipstream` prints when it is called wrongly.

    Args:
        arguments: words of the command line after the program's name.
    """
    done = in_process(*arguments)
    assert done.code == WRONG_USAGE, done
    assert "Traceback" not in done.stderr, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("slipstream: "), line
    return line.removeprefix("slipstream: ")


@contextlib.contextmanager
def _argv(*arguments: str) -> Generator[None]:
    before = sys.argv
    sys.argv = ["slipstream", *arguments]
    try:
        yield
    finally:
        sys.argv = before
