"""Temporary changes of environment variables, for scripts and tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def changed(**variables: str | None) -> Generator[None]:
    """Set environment variables as long as the context is open.

    Args:
        variables: Value of each variable by name; None leaves the variable unchanged.
    """
    values = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
