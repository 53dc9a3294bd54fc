"""Horovod's init(), for any framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

from slipstream.horovod.arrays import Arrays
from slipstream.horovod.common.process_sets import ProcessSet
from slipstream.horovod.job import is_initialized, job, join_job, leave_job
from slipstream.horovod.names import forget_names


def init(
    arrays: Arrays,
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | Literal["dynamic"] | None = None,
) -> None:
    """Connect this rank with all ranks of the job. A second call does nothing.

    The call blocks until all ranks have called init().

    Args:
        arrays: Adapter of the framework whose tensors the collectives take.
        comm: List of all ranks of the job, or None; a list of only some ranks is refused.
        process_sets: Process sets that exist from the beginning, the same on all ranks. "dynamic"
            allows scripts to add process sets later.

    Raises:
        ValueError: `comm` lacks a rank of the job, or two process sets have the same ranks.
        ConfigError, AuthError, PeerTimeoutError: The job cannot be joined.
    """
    is_first = not is_initialized()
    if is_first:
        forget_names()
    if not isinstance(comm, Sequence | None):
        raise ValueError(
            f"comm is {comm!r}; allowed: None, or a list of all ranks of the job. MPI's"
            " communicators are not supported"
        )
    is_dynamic = isinstance(process_sets, str) and process_sets.lower() == "dynamic"
    sets = () if process_sets is None or isinstance(process_sets, str) else process_sets
    join_job(arrays, sets, is_dynamic=is_dynamic)
    if comm and sorted(cast("Sequence[int]", comm)) != list(range(job().world.size)):
        if is_first:
            leave_job()
        raise ValueError(
            f"comm is {comm!r}; allowed: None, or a list of all ranks of the job. Pass some of them"
            " as process_sets=[hvd.ProcessSet(ranks)]"
        )
