"""Who this rank is, what there is, and timelines: what all frameworks' modules have in common."""

from __future__ import annotations

from pathlib import Path

from slipstream import comm
from slipstream.horovod.common.process_sets import ProcessSet
from slipstream.horovod.job import job, register, unregister


def rank() -> int:
    """Return the rank of this process, 0 to size() - 1."""
    return job().world.rank


def size() -> int:
    """Return the number of ranks."""
    return job().world.size


def local_rank() -> int:
    """Return the place of this rank among those of its host, 0 to local_size() - 1."""
    return job().local_rank(rank())


def local_size() -> int:
    """Return the number of ranks of this host."""
    return len(job().local_ranks(rank()))


def cross_rank() -> int:
    """Return the place of this rank among those with its place on their hosts."""
    return job().cross_ranks(rank()).index(rank())


def cross_size() -> int:
    """Return the number of hosts that have a rank with this one's place."""
    return len(job().cross_ranks(rank()))


def is_homogeneous() -> bool:
    """Return whether all hosts have as many ranks."""
    return job().is_homogeneous()


def add_process_set(process_set: ProcessSet | list[int]) -> ProcessSet:
    """Register a process set after init(); all ranks call it alike. Blocks until they have.

    Args:
        process_set: or the ranks of one.

    Raises:
        ValueError: HOROVOD_DYNAMIC_PROCESS_SETS is not set, or one has the same ranks.
    """
    _check_dynamic("adding")
    chosen = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    register(chosen)
    return chosen


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forget a process set; all ranks call it alike. Blocks until they have.

    Returns:
        Whether it was registered; that of all ranks stays.

    Raises:
        ValueError: HOROVOD_DYNAMIC_PROCESS_SETS is not set.
    """
    _check_dynamic("removing")
    return unregister(process_set)


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Record operations from now on, for Chrome's trace viewer and Perfetto.

    Bars show how long each tensor waited for the ranks that did not have it, and the engine's
    operations. While something is recorded, this only warns.

    Args:
        file_path: `{rank}` in it becomes the rank; without it only rank 0 records.
        mark_cycles: mark the rounds that started something, as Horovod marks its cycles.
    """
    job().timeline.start(file_path, marks_cycles=mark_cycles)


def stop_timeline() -> Path | None:
    """End the recording, and return the file; None where nothing was recorded."""
    job()
    return comm.timeline.stop()


def mpi_threads_supported() -> bool:
    """Refuse, as Horovod does without MPI.

    Raises:
        ValueError: always.
    """
    raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")


def mpi_enabled() -> bool:
    """Return False: MPI is not used."""
    return False


def mpi_built(verbose: bool = False) -> bool:
    """Return False: MPI is not used."""
    return False


def gloo_enabled() -> bool:
    """Return True: scripts ask so whether they run without MPI. The engine is Slipstream's."""
    return True


def gloo_built(verbose: bool = False) -> bool:
    """Return True, as gloo_enabled() does."""
    return True


def nccl_built(verbose: bool = False) -> int:
    """Return 0: NCCL is not used."""
    return 0


def ddl_built(verbose: bool = False) -> bool:
    """Return False: IBM's DDL is not used."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Return False: oneCCL is not used."""
    return False


def cuda_built() -> bool:
    """Return False: tensors are on the CPU."""
    return False


def rocm_built() -> bool:
    """Return False: tensors are on the CPU."""
    return False


def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:  # pyright: ignore[reportUnusedFunction]
    """Return the ranks of all process sets by number; Horovod's tests look at it."""
    return {number: list(each.ranks) for number, each in job().sets.items()}


def _check_dynamic(what: str) -> None:
    if not job().is_dynamic:
        raise ValueError(
            f"Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow {what} process sets after Horovod"
            " initialization."
        )
