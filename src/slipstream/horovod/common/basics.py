"""Functions of Horovod that are the same for all frameworks: ranks, process sets, timelines."""

from __future__ import annotations

from pathlib import Path

from slipstream import comm
from slipstream.horovod.common.process_sets import ProcessSet
from slipstream.horovod.job import job, register, unregister


def rank() -> int:
    """Return the rank of this process, 0 to size() - 1."""
    return job().world.rank


def size() -> int:
    """Return the number of ranks of the job."""
    return job().world.size


def local_rank() -> int:
    """Return the position of this rank among the ranks of its host, 0 to local_size() - 1."""
    return job().local_rank(rank())


def local_size() -> int:
    """Return the number of ranks on this host."""
    return len(job().local_ranks(rank()))


def cross_rank() -> int:
    """Return the position of this rank among the ranks with the same local rank."""
    return job().cross_ranks(rank()).index(rank())


def cross_size() -> int:
    """Return the number of hosts on which a rank has the same local rank as this rank."""
    return len(job().cross_ranks(rank()))


def is_homogeneous() -> bool:
    """Return whether all hosts have the same number of ranks."""
    return job().is_homogeneous()


def add_process_set(process_set: ProcessSet | list[int]) -> ProcessSet:
    """Register a process set after init().

    All ranks must call add_process_set(), which blocks until all of them have called.

    Args:
        process_set: Process set to register, or list of the set's ranks; the same on all ranks.

    Returns:
        The registered process set.

    Raises:
        ValueError: HOROVOD_DYNAMIC_PROCESS_SETS is not set, or a set with these ranks exists.
    """
    _check_dynamic("adding")
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    register(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set from the registered sets.

    All ranks must call remove_process_set(), which blocks until all of them have called.

    Returns:
        True if the set was removed; False if it was not registered, or consists of all ranks.

    Raises:
        ValueError: HOROVOD_DYNAMIC_PROCESS_SETS is not set.
    """
    _check_dynamic("removing")
    return unregister(process_set)


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Record a timeline from now on, for Chrome's trace viewer and Perfetto.

    Bars show the time for which each tensor waited for other ranks, and the operations of the
    engine. During the recording of another timeline, this call only logs a warning.

    Args:
        file_path: Path of the timeline's file; `{rank}` in the path becomes the rank. Without
            `{rank}` in the path, only rank 0 records.
        mark_cycles: Whether negotiation rounds that started operations are marked, as Horovod marks
            its cycles (default False).
    """
    job().timeline.start(file_path, marks_cycles=mark_cycles)


def stop_timeline() -> Path | None:
    """End the recording of the timeline; return its path, or None if nothing was recorded."""
    job()
    return comm.timeline.stop()


def mpi_threads_supported() -> bool:
    """Raise an error, as Horovod does without MPI.

    Raises:
        ValueError: MPI is not used.
    """
    raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")


def mpi_enabled() -> bool:
    """Return False: MPI is not used."""
    return False


def mpi_built(verbose: bool = False) -> bool:
    """Return False: MPI is not used."""
    return False


def gloo_enabled() -> bool:
    """Return True, so that scripts know that they run without MPI; Gloo itself is not used."""
    return True


def gloo_built(verbose: bool = False) -> bool:
    """Return True, so that scripts know that they run without MPI; Gloo itself is not used."""
    return True


def nccl_built(verbose: bool = False) -> int:
    """Return 0, so that scripts with Adasum do not expect it to sum within hosts first."""
    return 0


def ddl_built(verbose: bool = False) -> bool:
    """Return False: IBM's DDL is not used."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Return False: oneCCL is not used."""
    return False


def cuda_built() -> bool:
    """Return True: tensors may be on CUDA GPUs, whose driver is opened at its first use."""
    return True


def rocm_built() -> bool:
    """Return False: GPUs of AMD are not supported."""
    return False


def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:  # pyright: ignore[reportUnusedFunction]
    """Return the ranks of all process sets, by the identifier of the set.

    This function exists because Horovod's own tests call it.
    """
    return {number: list(process_set.ranks) for number, process_set in job().sets.items()}


def _check_dynamic(action: str) -> None:
    if not job().is_dynamic:
        raise ValueError(
            f"Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow {action} process sets after Horovod"
            " initialization."
        )
