"""Waits at the end of a backward pass for what DDP waits for next.

DDP waits in C++, where Ctrl-C does not arrive, and where a future tells of an error only by its
value. So futures that are made in a backward pass are waited for by a callback at its end. PyTorch
calls it before DDP's, because it was queued first: Ctrl-C arrives there, and an error is raised as
it is. DDP's own wait is short after that. It runs no Python code, because Ctrl-C would arrive
there, and PyTorch would make it a RuntimeError.
"""

# PyTorch has no public way to tell whether a backward pass runs, nor to queue what is called at
# its end.
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import functools
import importlib
import threading
import weakref
from typing import Any, cast

import torch
from torch.autograd import Variable

from slipstream import _core

_NONE = -1  # the number of the backward pass where there is none

_of_torch = cast("Any", torch._C)
_queue: Any = cast("Any", Variable)._execution_engine.queue_callback


class _End:
    """The callback at the end of a backward pass, which alone owns it: one that fails frees it.

    Args:
        task: the number of the backward pass.
    """

    def __init__(self, task: int) -> None:
        self.task = task
        self.futures: list[torch.futures.Future[Any]] = []

    def __call__(self) -> None:
        if _of_torch._current_autograd_node() is not None:  # a node of the pass around this one
            return
        for future in reversed(self.futures):  # most end in their order: one wait does for all
            _block_until_done(future)
        for future in self.futures:
            future.wait()


# The callback that was made last. Nothing is called when it goes: that would be Python code where
# Ctrl-C is lost.
_latest: weakref.ref[_End] | None = None


def wait_at_end(future: torch.futures.Future[Any]) -> None:
    """Have the future waited for at the end of the backward pass that the caller runs in, if any.

    A pass that runs within another one, as that of a reentrant checkpoint, waits for nothing: its
    communication overlaps with what the outer pass computes next. DDP ends in an inner pass if the
    last gradients come out of it, and in its own callback in the first step of a static graph: no
    callback can stand before these.
    """
    global _latest
    task = _of_torch._current_graph_task_id()
    if task == _NONE:
        return
    end = _latest() if _latest is not None else None
    if end is None or end.task != task:
        end = _End(task)
        _latest = weakref.ref(end)
        _queue(end)
    end.futures.append(future)


def _block_until_done(future: torch.futures.Future[Any]) -> None:
    """Block until the future is complete or has failed; Ctrl-C ends the wait."""
    if not future.done():
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        done.wait()


def extract_without_python() -> None:
    """Let PyTorch look for the tensors of a future's value, as it does for DDP, in C++.

    PyTorch's own function is kept for values other than lists of tensors. PyTorch looks for the
    function once, when it first needs it: call this once, before the first group is made.
    """
    module = importlib.import_module("torch._jit_internal")
    of_torch = module._extract_tensors
    module._extract_tensors = functools.partial(_core.items_of, torch.Tensor, of_torch)
