"""PyTorch's default process group of an elastic job, which is made anew for each epoch.

It uses the engine of slipstream.comm. So survivors of a fault keep their connections, and a new
group costs milliseconds.
"""

from __future__ import annotations

import functools
import gc
import importlib
import sys
import weakref
from datetime import timedelta
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.rendezvous import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from slipstream.comm import worlds
from slipstream.comm.active import OpenEngine
from slipstream.comm.elastic import session
from slipstream.errors import UsageError
from slipstream.settings import Settings
from slipstream.torch import bootstrap
from slipstream.torch.backend import BACKEND_NAME
from slipstream.torch.completions import Completions
from slipstream.torch.step_overlap import abandon_overlaps

# Time in which rank 0, from which the port has just come, must answer. Chosen by hand.
_STORE_SECONDS = 5.0

# One for each engine, as the events of an engine have one reader.
_completions: weakref.WeakKeyDictionary[OpenEngine, Completions] = weakref.WeakKeyDictionary()


@functools.cache
def prepare() -> None:
    """Do what would delay all ranks later; call it before the process joins a job.

    The first optimizer imports torch._dynamo, which takes seconds. All objects that exist now are
    set apart from those that leave_epoch() looks through for garbage.
    """
    importlib.import_module("torch._dynamo")
    gc.collect()
    gc.freeze()


def enter_epoch() -> None:
    """Make PyTorch's default group one of the ranks of the present epoch; all ranks call it.

    Blocks until rank 0 has made the store of the group.

    Raises:
        UsageError: the script has made a default group that this module does not know.
    """
    if dist.is_initialized():
        raise UsageError(
            "torch.distributed has a default group already; an elastic job makes it itself, so"
            " remove init_process_group() from the script, or call destroy_process_group() first"
        )
    here = worlds.current_world()
    if here.engine not in _completions:
        _completions[here.engine] = completions = Completions(here.engine.runtime)
        here.engine.when_closed(completions.close)
    bootstrap.lend(
        bootstrap.LentEngine(
            engine=here.engine,
            completions=_completions[here.engine],
            members=here.members,
            title=session().epoch.title,
        )
    )
    hook = sys.excepthook
    dist.init_process_group(
        BACKEND_NAME, store=_new_store(), rank=here.group.rank, world_size=here.group.size
    )
    # PyTorch has wrapped it, to print "[rank0]: " before each line. After some epochs, a line would
    # begin with the ranks of all of them.
    sys.excepthook = hook


def in_epoch() -> bool:
    """Return whether PyTorch's default group is one that enter_epoch() has made."""
    return dist.is_initialized() and bootstrap.is_lent()


def leave_epoch() -> None:
    """Destroy PyTorch's default group, with all that is attached to it; other ranks may be lost.

    Objects of DistributedDataParallel that the script still holds must not be used any more.
    """
    abandon_overlaps()
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()  # models wrapped for the last epoch have hooks on the parameters
    _forget_meshes()
    bootstrap.lend(None)


def _forget_meshes() -> None:
    """Clear what DTensor remembers of the operations on meshes.

    It takes two meshes of equally many ranks for the same one, although this process may have
    another rank in the second one, and returns tensors on the first one.
    """
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import DTensor

    tensors, core = cast("Any", DTensor), cast("Any", torch)._C
    tensors._op_dispatcher.sharding_propagator.propagate_op_sharding.cache.cache_clear()
    clear_fast_path = getattr(core, "_clear_DTensor_sharding_propagator_cache", None)
    if clear_fast_path is not None:  # PyTorch 2.10 and later have it
        clear_fast_path()


def _new_store() -> TCPStore:
    """Return a store of the epoch, which rank 0 serves at a free port."""
    host, _ = session().epoch.leader.place
    timeout = timedelta(seconds=Settings.from_environment().connect_timeout_seconds)
    soon = min(timeout, timedelta(seconds=_STORE_SECONDS))
    port = np.zeros(1, np.int64)
    group = worlds.world()
    store: TCPStore | None = None
    if group.rank == 0:
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        port[0] = store.port
    group.broadcast(port, 0, name="port of the store")
    if store is None:
        store = TCPStore(host, int(port[0]), is_master=False, timeout=soon)
        store.set_timeout(timeout)
    return store
