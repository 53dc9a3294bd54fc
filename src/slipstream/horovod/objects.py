"""Collectives of Python objects, which are pickled."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import numpy as np

from slipstream.horovod import collectives
from slipstream.horovod.common.exceptions import HorovodInternalError
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.job import job, queue_of

_NOT_PICKLED = -1  # sent in place of the size if an object cannot be pickled


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the object of one rank on all ranks; the object is pickled. Blocks.

    Args:
        obj: Object to send; ignored on all ranks but `root_rank`.
        root_rank: Rank of the sender in the job (default 0).
        name: Name of the object, the same on all ranks (default "broadcast_object"). Two objects
            under way at the same time need different names.
        process_set: Process set whose ranks take part (default: all ranks).

    Raises:
        HorovodInternalError: The sender cannot pickle its object, or the collective failed.
    """
    name = "broadcast_object" if name is None else name
    arrays = queue_of(process_set).arrays
    is_root = job().world.rank == root_rank
    data, error = _pickled(obj) if is_root else (bytearray(), None)
    size = arrays.from_numpy(np.array([_NOT_PICKLED if error else len(data)], dtype=np.int64))
    collectives.broadcast(size, root_rank, f"{name}.size", process_set, in_place=True).wait()
    num_bytes = int(arrays.to_numpy(size)[0])
    if num_bytes == _NOT_PICKLED:
        raise HorovodInternalError(
            f"rank {root_rank} cannot pickle the object that it broadcasts"
        ) from error
    content = np.frombuffer(data if is_root else bytearray(num_bytes), dtype=np.uint8)
    memory = arrays.from_numpy(content)
    collectives.broadcast(memory, root_rank, f"{name}.data", process_set, in_place=True).wait()
    return obj if is_root else pickle.loads(arrays.to_numpy(memory).tobytes())


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks, in the order of the ranks; the objects are pickled. Blocks.

    Args:
        obj: Object of this rank; ranks may have objects of different types.
        name: Name of the objects, the same on all ranks (default "allgather_object"). Two calls
            under way at the same time need different names.
        process_set: Process set whose ranks take part (default: all ranks).

    Raises:
        HorovodInternalError: A rank cannot pickle its object, or the collective failed.
    """
    name = "allgather_object" if name is None else name
    arrays = queue_of(process_set).arrays
    data, error = _pickled(obj)
    own_size = arrays.from_numpy(np.array([_NOT_PICKLED if error else len(data)], dtype=np.int64))
    gathered = collectives.allgather(own_size, f"{name}.size", process_set).wait()
    sizes = arrays.to_numpy(gathered)
    if failed := np.flatnonzero(sizes == _NOT_PICKLED).tolist():
        raise HorovodInternalError(
            f"ranks {failed} of the process set cannot pickle the object that they gather"
        ) from error
    memory = arrays.from_numpy(np.frombuffer(data, dtype=np.uint8))
    content = collectives.allgather(memory, f"{name}.data", process_set).wait()
    parts = np.split(arrays.to_numpy(content), np.cumsum(sizes)[:-1])
    return [pickle.loads(part.tobytes()) for part in parts]


def _pickled(obj: Any) -> tuple[bytearray, Exception | None]:
    """Return a pickled object and None, or empty bytes and the error that pickling raised."""
    try:
        pickled: bytes = cloudpickle.dumps(obj)  # pyright: ignore[reportUnknownMemberType]
        return bytearray(pickled), None
    except Exception as error:  # noqa: BLE001  a user's object may raise anything
        return bytearray(), error
