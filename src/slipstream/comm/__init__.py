"""Collectives between processes on any buffer or DLPack array; no framework is needed.

    import numpy as np
    from slipstream import comm

    comm.init()
    gradient = np.ones(1000, dtype=np.float32)
    comm.allreduce(gradient, "average")

The functions of this package work on the group of all ranks; a `Group` has the same collectives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from slipstream.comm import timeline as timeline
from slipstream.comm.collectives import ANY_RANK as ANY_RANK
from slipstream.comm.collectives import Group as Group
from slipstream.comm.counters import Stats as Stats
from slipstream.comm.counters import stats as stats
from slipstream.comm.flight import write_flight_record as write_flight_record
from slipstream.comm.handle import Handle as Handle
from slipstream.comm.worlds import group as group
from slipstream.comm.worlds import init as init
from slipstream.comm.worlds import is_initialized as is_initialized
from slipstream.comm.worlds import local_rank as local_rank
from slipstream.comm.worlds import local_ranks as local_ranks
from slipstream.comm.worlds import local_size as local_size
from slipstream.comm.worlds import rank as rank
from slipstream.comm.worlds import shutdown as shutdown
from slipstream.comm.worlds import size as size
from slipstream.comm.worlds import world as world

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _on_world(collective: Callable[Concatenate[Group, _P], _R]) -> Callable[_P, _R]:
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return collective(world(), *args, **kwargs)

    call.__name__ = collective.__name__
    call.__doc__ = collective.__doc__
    return call


allreduce = _on_world(Group.allreduce)
reduce_scatter = _on_world(Group.reduce_scatter)
all_gather = _on_world(Group.all_gather)
all_gather_v = _on_world(Group.all_gather_v)
broadcast = _on_world(Group.broadcast)
reduce = _on_world(Group.reduce)
gather = _on_world(Group.gather)
scatter = _on_world(Group.scatter)
all_to_all = _on_world(Group.all_to_all)
all_to_all_v = _on_world(Group.all_to_all_v)
barrier = _on_world(Group.barrier)
send = _on_world(Group.send)
recv = _on_world(Group.recv)
