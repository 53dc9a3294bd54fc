"""How a PyTorch script joins an elastic job, and trains on after changes of its members."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import slipstream.horovod.torch as hvd
from slipstream.comm import elastic as core
from slipstream.comm.elastic.loop import Survives
from slipstream.horovod.job import renew_job
from slipstream.torch.epoch_group import enter_epoch, in_epoch, leave_epoch, prepare

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S", bound=Survives)


def init() -> None:
    """Join the job, and make PyTorch's default process group. A second call does nothing.

    Blocks until all ranks have come. A process that joins a job that runs blocks until the others
    have committed and admit it.

    Raises:
        ConfigError, AuthError, PeerTimeoutError: the job cannot be joined.
        UsageError: the script has called init_process_group() before.
    """
    prepare()
    core.session()
    hvd.init()
    if not in_epoch():
        enter_epoch()


def run(function: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Make a function of a state go on after faults and changes of the members.

    Args:
        function: Function whose first argument is a state, such as a `TorchState`. It is called
            again after each change, with the state as it was at the last commit.

    Raises:
        TooFewRanksError: too few ranks are left, and too few came within 10 minutes.
    """
    trained = core.run(function, before_change=leave_epoch, after_change=_enter)

    @functools.wraps(function)
    def train(state: _S, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        init()
        return trained(state, *args, **kwargs)

    return train


def _enter() -> None:
    renew_job()
    enter_epoch()
