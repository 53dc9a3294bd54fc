"""Elastic training with Horovod's names: a face of `slipstream.comm.elastic` for any framework.

`run` lets a function of a state go on after faults and changes of the members. When the members
have changed, the queues of tensors and the process sets are made again on the new world; the
processes stay.
"""

from __future__ import annotations

import copy
import functools
import queue
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from slipstream.comm import elastic
from slipstream.comm.elastic.session import begun_session
from slipstream.horovod.common.exceptions import HostsUpdatedInterrupt
from slipstream.horovod.job import renew_job
from slipstream.horovod.runner.elastic.worker import HostUpdateResult

_P = ParamSpec("_P")
_R = TypeVar("_R")


class State(elastic.ElasticState):
    """State of training, whose subclass says how it is kept and sent.

    A subclass defines save(), restore() and sync(), and may define reset(). If a rank is lost, all
    others call restore() and then sync(), which gives them the last commit of rank 0.

    Args:
        bcast_object: Function that broadcasts an object from rank 0.
        get_rank: Function that returns the rank of this process.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        super().__init__()
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[float, HostUpdateResult]] = queue.Queue()
        self._last_updated_timestamp = 0.0

    @property
    def keeps_two_commits(self) -> bool:
        """Whether all ranks can go back to the same commit without sync(): False here."""
        return False

    def forget_after(self, commit: int) -> None:
        """Do nothing, because only the last commit is kept."""

    def save(self) -> None:
        """Keep the present state.

        Raises:
            NotImplementedError: The subclass does not define save().
        """
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the state of the last save().

        Raises:
            NotImplementedError: The subclass does not define restore().
        """
        raise NotImplementedError

    def sync(self) -> None:
        """Give the state of rank 0 to all ranks, which call this method together.

        Raises:
            NotImplementedError: The subclass does not define sync().
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Do nothing; a subclass may adapt objects to the new ranks, before the state is sent."""

    def on_reset(self) -> None:
        """Call reset(), and then the functions of register_reset_callbacks()."""
        self._host_messages = queue.Queue()
        self.reset()
        super().on_reset()

    def on_hosts_updated(self, timestamp: float, update_res: HostUpdateResult) -> None:
        """Take note that processes want to join or to leave; any thread may call this method.

        Args:
            timestamp: Time of the news, in seconds since 1970.
            update_res: Kind of the change.
        """
        self._host_messages.put((timestamp, update_res))

    def check(self) -> None:
        """Call check_host_updates()."""
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Let processes join and leave, without a commit.

        Outside of a function of `run`, this does nothing.

        Raises:
            HostsUpdatedInterrupt: Processes join or leave now; `run` handles it.
        """
        if begun_session() is None:
            return
        try:
            super().check()
        except elastic.MembershipChanged as change:
            self._last_updated_timestamp = time.time()
            raise HostsUpdatedInterrupt(skip_sync=False) from change


class ObjectState(State):
    """State of plain values, which become attributes of the object.

    Args:
        bcast_object: Function that broadcasts an object from rank 0.
        get_rank: Function that returns the rank of this process.
        kwargs: Values by name. They are copied deeply at each commit.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        self._names = tuple(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        super().__init__(bcast_object, get_rank)
        self._kept = {0: self.capture()}

    if TYPE_CHECKING:  # the values are attributes

        def __getattr__(self, name: str) -> Any: ...

    @property
    def keeps_two_commits(self) -> bool:
        """Whether all ranks can go back to the same commit without sync(): True here."""
        return True

    def forget_after(self, commit: int) -> None:
        """Forget the commits that other ranks do not have."""
        elastic.ElasticState.forget_after(self, commit)

    def capture(self) -> Any:
        """Return a deep copy of the values."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self._names}

    def apply(self, captured: Any) -> None:
        """Set the values to a deep copy of captured ones."""
        for name, value in captured.items():
            setattr(self, name, copy.deepcopy(value))

    def share(self) -> None:
        """Give the values of rank 0 to all ranks."""
        values = {name: getattr(self, name) for name in self._names}
        received = self._bcast_object(values)
        if self._rank() != 0:
            for name, value in received.items():
                setattr(self, name, value)

    def save(self) -> None:
        """Keep the present values, besides those of the commit before."""
        elastic.ElasticState.save(self)

    def restore(self) -> None:
        """Go back to the values of the last commit."""
        elastic.ElasticState.restore(self)

    def sync(self) -> None:
        """Give the values of rank 0 to all ranks, and keep them as a commit."""
        elastic.ElasticState.sync(self)


_S = TypeVar("_S", bound=State)


def run(function: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Make a function of a state go on after faults and changes of the members.

    The function is called again after each change. Collectives must not be called before it in a
    process that joins a running job.

    Args:
        function: Function whose first argument is a `State`.

    Raises:
        TooFewRanksError: Too few ranks are left, and too few came within 10 minutes.
    """
    trained = elastic.run(function, after_change=renew_job)

    @functools.wraps(function)
    def train(state: _S, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _news_for(state):
            return trained(state, *args, **kwargs)

    return train


@contextmanager
def _news_for(state: State) -> Generator[None]:
    """Let a state know when processes want to join or leave."""
    session = elastic.session()

    def tell() -> None:
        joins = session.awaits_joiners
        kind = HostUpdateResult.added if joins else HostUpdateResult.removed
        state.on_hosts_updated(time.time(), kind)

    session.listeners.append(tell)
    try:
        yield
    finally:
        session.listeners.remove(tell)
