"""The loop that trains, and goes on after a fault or a change of the members."""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from slipstream.comm import worlds
from slipstream.comm.elastic.formation import LeftError, OverError
from slipstream.comm.elastic.session import (
    ElasticSession,
    MembershipChanged,
    end_session,
    session,
)
from slipstream.errors import PeerError, SlipstreamError, UsageError
from slipstream.flight.launcher import LEFT_EXIT_CODE

_NEWS_SECONDS = 2.0  # time in which the engine learns of a fault that a framework has noticed first

_P = ParamSpec("_P")
_R = TypeVar("_R")

_log = logging.getLogger(__name__)


class StateLostError(SlipstreamError):
    """Start the job again, from its last checkpoint: nobody who is left has the state."""


class Survives(Protocol):
    """State that `run` brings through faults; see `ElasticState`."""

    num_commits: int
    num_checks: int

    @property
    def keeps_two_commits(self) -> bool: ...
    def forget_after(self, commit: int) -> None: ...
    def restore(self) -> None: ...
    def begin_checks(self) -> None: ...
    def is_as_noted(self) -> bool: ...
    def return_to_note(self) -> None: ...
    def on_reset(self) -> None: ...
    def sync(self) -> None: ...


_S = TypeVar("_S", bound=Survives)


def run(
    function: Callable[Concatenate[_S, _P], _R],
    *,
    before_change: Callable[[], None] = lambda: None,
    after_change: Callable[[], None] = lambda: None,
) -> Callable[Concatenate[_S, _P], _R]:
    """Make a function of a state go on after faults and changes of the members.

    The function is called again after each change, with the state as it was at the last commit. It
    should go on from there: `while state.epoch < epochs: ...`.

    A rank that gets SIGTERM leaves the job at its next commit and exits with code 143, without any
    loss. When the function returns, the training is over for all ranks.

    Args:
        function: Function whose first argument is a state, such as an ObjectState.
        before_change: Function that is called before the members change (default: does nothing).
        after_change: Function that is called after they have changed, before the state is sent.

    Raises:
        TooFewRanksError: too few ranks are left, and too few came within 10 minutes.
        StateLostError: all ranks that had the state are lost.
        UsageError: the function itself calls such a function.
    """

    def changed(membership: ElasticSession, state: Survives, was_fault: bool) -> bool:
        return _changed(membership, state, was_fault, before_change, after_change)

    @functools.wraps(function)
    def train(state: _S, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        membership = session()
        if membership.is_training:
            raise UsageError(
                "elastic.run was called by a function that elastic.run itself has called; allowed:"
                " one training after the other, each on all ranks"
            )
        membership.is_training = True
        with _Leaving(membership):
            try:
                result = _trained(membership, function, state, args, kwargs, changed)
            except Exception:
                end_session(is_over=False)
                raise
            membership.await_last_commit()
            end_session(is_over=True)
            return result

    return train


def _trained(
    membership: ElasticSession,
    function: Callable[..., _R],
    state: Survives,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    changed: Callable[[ElasticSession, Survives, bool], bool],
) -> _R:
    """Call the function until it returns, and bring the state through each change before a call."""
    is_settled = _is_settled(membership, state, was_fault=False, is_first=True)
    was_fault = not is_settled
    while True:
        while not is_settled:
            is_settled = changed(membership, state, was_fault)
            was_fault = True
        is_settled = False
        try:
            return function(state, *args, **kwargs)
        except MembershipChanged:
            was_fault = False
        except Exception as error:
            if not _is_fault(membership, error):
                raise
            _log.info("the call ends with the epoch: %s", error)  # the engine has said why
            # Some frameworks keep the error, and so all that the function has made.
            traceback.clear_frames(error.__traceback__)
            was_fault = True


def _changed(
    membership: ElasticSession,
    state: Survives,
    was_fault: bool,
    before: Callable[[], None],
    after: Callable[[], None],
) -> bool:
    """Form the next epoch and bring the state there; return False if another rank was lost."""
    before()
    try:
        membership.reform(admits=not was_fault)
    except (LeftError, OverError) as end:
        _log.info("%s", end)
        end_session(is_over=False)
        worlds.shutdown()
        sys.exit(LEFT_EXIT_CODE if isinstance(end, LeftError) else 0)
    return _is_settled(membership, state, was_fault=was_fault, after=after)


def _is_settled(
    membership: ElasticSession,
    state: Survives,
    *,
    was_fault: bool,
    is_first: bool = False,
    after: Callable[[], None] = lambda: None,
) -> bool:
    """Settle; return False if another rank was lost meanwhile."""
    try:
        after()
        _settle(membership, state, was_fault=was_fault, is_first=is_first)
    except Exception as error:
        if not _is_fault(membership, error):
            raise
        _log.warning("another rank is lost: %s", error)
        return False
    return True


def _settle(
    membership: ElasticSession, state: Survives, *, was_fault: bool, is_first: bool
) -> None:
    """Bring the state of all members to where all survivors have been.

    This is where they are, if nothing was applied to the state since the last check, and otherwise
    their last commit. If one rank noticed a fault and another one only the change of the members,
    all go back.
    """
    check = state.num_checks if state.is_as_noted() else -1
    commit = -1 if membership.is_new else state.num_commits
    mine = [commit, check, int(was_fault), int(membership.is_untrained)]
    gathered = worlds.world().all_gather(np.array(mine, np.int64), name="commits")
    commits, was_fault = gathered[:, 0], bool(gathered[:, 2].any())
    survivors, checks = commits[commits >= 0], gathered[commits >= 0, 1]
    if survivors.size == 0 and not gathered[:, 3].any():
        raise StateLostError(
            "all ranks that had the state of the training are lost, and the ranks that are left"
            " had not received it; start the job again, from its last checkpoint"
        )
    if not membership.is_new and was_fault:
        _forget_after(state, int(survivors.min()))
        is_kept = bool(checks[0] >= 0 and (checks == checks[0]).all())
        if is_kept:
            state.return_to_note()
        else:
            state.restore()
        if worlds.world().rank == 0:
            whence = "the step that was interrupted" if is_kept else f"commit {state.num_commits}"
            who = "1 rank goes" if commits.size == 1 else f"{commits.size} ranks go"
            _log.warning("%s on in %s, from %s", who, membership.epoch.title, whence)
    if not is_first:
        _reset(membership, state)
    if is_first or survivors.size < commits.size or (was_fault and not state.keeps_two_commits):
        state.sync()
    state.begin_checks()
    membership.is_new = membership.is_untrained = False


def _forget_after(state: Survives, commit: int) -> None:
    try:
        state.forget_after(commit)
    except UsageError as error:
        raise StateLostError(
            f"this rank cannot go back to where the others are: {error}; all ranks must commit at"
            " the same steps"
        ) from error


def _reset(membership: ElasticSession, state: Survives) -> None:
    membership.is_resetting = True
    try:
        state.on_reset()
    finally:
        membership.is_resetting = False


def _is_fault(membership: ElasticSession, error: Exception) -> bool:
    """Return whether an error comes from the loss of a rank, which the others survive."""
    if isinstance(error, StateLostError):
        return False
    if isinstance(error, PeerError) or isinstance(error.__cause__, PeerError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    deadline = time.monotonic() + _NEWS_SECONDS
    while not membership.is_broken:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class _Leaving:
    """A context in which SIGTERM makes this process leave the job at its next commit.

    Only the main thread can set a handler; elsewhere the context does nothing.

    Args:
        membership: Membership of this process.
    """

    def __init__(self, membership: ElasticSession) -> None:
        self._membership = membership
        self._is_main = threading.current_thread() is threading.main_thread()
        self._before: Any = None

    def __enter__(self) -> None:
        if self._is_main:
            self._before = signal.signal(signal.SIGTERM, self._leave)

    def _leave(self, *_: object) -> None:
        self._membership.leave()

    def __exit__(self, *_: object) -> None:
        if self._is_main:
            signal.signal(signal.SIGTERM, self._before)
