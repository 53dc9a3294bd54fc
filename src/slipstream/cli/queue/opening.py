"""The queue of this user, opened for one command, and the daemon that is woken afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.output import remark
from slipstream.settings import home_folder

if TYPE_CHECKING:
    from slipstream.cluster.queue import QueueStore

Jobs = Annotated[list[int], typer.Argument(metavar="JOB...", help="Numbers of jobs.")]
OneJob = Annotated[int, typer.Argument(metavar="JOB", help="Number of a job.")]


@contextmanager
def opened_queue() -> Generator[QueueStore]:
    """Yield the database of the queue."""
    from slipstream.cluster.queue import QueueStore  # imported here because it takes 0.3 s

    store = QueueStore(home_folder())
    try:
        yield store
    finally:
        store.close()


def wake_daemon() -> None:
    """Let the daemon look at the queue at once; say so if there is no daemon."""
    from slipstream.cluster.queue.folders import fifo_path

    path = fifo_path(home_folder())
    try:
        fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENOENT):
            raise
        remark("no daemon serves the queue; start it with: slipstream queue serve")
        return
    try:
        os.write(fifo, b"x")
    except BlockingIOError:
        pass  # it is full, so the daemon wakes up anyway
    finally:
        os.close(fifo)
