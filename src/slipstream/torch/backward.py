"""Wait for futures at the end of a backward pass, just before DDP waits for them.

DDP waits in C++, where Ctrl-C does not arrive, and where a future can report an error only by its
value. So a Python callback at the end of a backward pass waits for the futures that were created
during the pass. In a Python callback, Ctrl-C arrives, and errors are raised unchanged. PyTorch
calls the Python callback before DDP's callback, because the Python callback was queued first; DDP
then waits for a short time only. DDP's own wait must run no Python code: Ctrl-C would arrive in
that code, and PyTorch would turn it into a RuntimeError.
"""

# PyTorch has no public function that returns whether a backward pass runs, or that queues a
# callback for its end.
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

_NONE = -1  # number of the backward pass when none runs

_torch_c = cast("Any", torch._C)
_queue: Any = cast("Any", Variable)._execution_engine.queue_callback


class _End:
    """Callback that waits for futures at the end of a backward pass.

    Only the backward pass keeps the callback alive, so the callback is freed even if the pass
    fails.

    Args:
        task: Identifier of the backward pass (autograd's graph task).
    """

    def __init__(self, task: int) -> None:
        self.task = task
        self.futures: list[torch.futures.Future[Any]] = []

    def __call__(self) -> None:
        if _torch_c._current_autograd_node() is not None:  # this pass runs within another one
            return
        for future in reversed(self.futures):  # most complete in order, so only one wait is long
            _block_until_done(future)
        for future in self.futures:
            future.wait()


# The callback that was created last. The reference has no finalizer, which would be Python code in
# a place where Ctrl-C is lost.
_latest: weakref.ref[_End] | None = None


def wait_at_end(future: torch.futures.Future[Any]) -> None:
    """Make the current backward pass, if one runs, wait for a future at its end.

    A backward pass inside another, as in a reentrant checkpoint, does not wait at its end, so that
    its communication overlaps with the rest of the outer pass. In two cases DDP waits before the
    callback can run: if an inner pass computes the last gradients, and in the first step of a
    static graph.
    """
    global _latest
    task = _torch_c._current_graph_task_id()
    if task == _NONE:
        return
    end = _latest() if _latest is not None else None
    if end is None or end.task != task:
        end = _End(task)
        _latest = weakref.ref(end)
        _queue(end)
    end.futures.append(future)


def _block_until_done(future: torch.futures.Future[Any]) -> None:
    """Block until a future is complete or has failed; Ctrl-C ends the wait."""
    if not future.done():
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        done.wait()


def extract_without_python() -> None:
    """Replace PyTorch's function that finds tensors in a future's value by a function in C++.

    The replaced function is `torch._jit_internal._extract_tensors`, which DDP uses. The function in
    C++ handles lists and tuples of tensors; it passes all other values to the replaced function.
    PyTorch looks up `_extract_tensors` at the first use, and keeps the result. So call
    `extract_without_python` once, before the first group is created.
    """
    module = importlib.import_module("torch._jit_internal")
    original = module._extract_tensors
    module._extract_tensors = functools.partial(_core.items_of, torch.Tensor, original)
